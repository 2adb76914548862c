{{- define "undersong.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (default .Chart.Name .Values.nameOverride) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (default .Chart.Name .Values.nameOverride) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "undersong.selector" -}}
app.kubernetes.io/name: undersong
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "undersong.labels" -}}
{{ include "undersong.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: undersong
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "undersong.image" -}}
{{- with .Values.image -}}
{{- if .registry }}{{ .registry }}/{{ end }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* A file of config/ with this release's ServiceAccount in it. */ -}}
{{- define "undersong.config" -}}
{{- $account := printf "system:serviceaccount:%s:%s" .root.Release.Namespace .root.Values.serviceAccount.name -}}
{{- .root.Files.Get .path
  | replace "system:serviceaccount:undersong-system:undersong-controller" $account
  | replace "system:serviceaccounts:undersong-system" (printf "system:serviceaccounts:%s" .root.Release.Namespace) -}}
{{- end -}}

{{- /* What every container of this chart may do: nothing. */ -}}
{{- define "undersong.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}
