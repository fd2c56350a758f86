// Its own module: porcupine is what a test needs, never part of the product.
module github.com/fairway-net/fairway/test/linearizability/checker

go 1.26.0

require github.com/anishathalye/porcupine v1.3.1
