{{- define "counterpoise.labels" -}}
app.kubernetes.io/name: counterpoise
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "counterpoise.security" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end -}}

{{- define "counterpoise.client" -}}
{{- if .Values.clientSecret }}
- {name: COUNTERPOISE_COMMAND_CONFIG, value: /etc/counterpoise-client/client.properties}
{{- end }}
{{- end -}}
