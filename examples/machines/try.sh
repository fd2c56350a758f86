#!/bin/sh
# Two processes on this machine behind one address. Needs `fairway up` (as root)
# and python3; ends with a curl. Run as root: ./try.sh IPV4-ADDRESS-OF-THIS-MACHINE
set -e
servers=
address=${1:?usage: try.sh IPV4-ADDRESS-OF-THIS-MACHINE}
for port in 8001 8002; do
	directory=$(mktemp -d)
	echo "answered by port $port" >"$directory/index.html"
	python3 -m http.server --bind "$address" --directory "$directory" "$port" 2>/dev/null &
	servers="$servers $!"
done
for port in 8001 8002; do
	until curl -s -o /dev/null "http://$address:$port/"; do sleep 0.1; done
done
trap 'kill $servers' EXIT
fairway expose try-machines --port 80 --to "$address:8001,$address:8002" --check http:/
ip=$(fairway kubectl get service try-machines -o 'jsonpath={.spec.clusterIP}')
for i in 1 2 3 4; do curl -s --retry 10 --retry-connrefused --retry-delay 1 "http://$ip/"; done
fairway kubectl delete service try-machines
