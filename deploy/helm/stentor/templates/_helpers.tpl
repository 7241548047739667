{{- define "stentor.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "stentor.labels" -}}
app.kubernetes.io/name: stentor
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "stentor.selector" -}}
app.kubernetes.io/name: stentor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
