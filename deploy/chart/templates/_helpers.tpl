{{- define "fairway.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* ebpf says whether the agent gets what ebpf mode takes. */ -}}
{{- define "fairway.ebpf" -}}
{{- if or .Values.agent.ebpf (has .Values.agent.mode (list "ebpf" "auto")) }}true{{ end }}
{{- end }}
