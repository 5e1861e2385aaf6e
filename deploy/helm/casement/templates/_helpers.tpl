{{/* The name of everything in the release. */}}
{{- define "casement.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of the headless service, by which nodes reach each other. */}}
{{- define "casement.clusterName" -}}
{{- include "casement.name" . }}-nodes
{{- end -}}

{{/* The labels by which pods are selected. They never change. */}}
{{- define "casement.selector" -}}
app.kubernetes.io/name: casement
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The labels of the pod of `helm test`, which the services do not select. */}}
{{- define "casement.testSelector" -}}
app.kubernetes.io/name: casement-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "casement.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The host names by which clients come in from outside. */}}
{{- define "casement.publicHosts" -}}
{{- $hosts := list -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = concat (list .Values.ingress.host) .Values.ingress.extraHosts -}}
{{- end -}}
{{- if .Values.httpRoute.enabled -}}
{{- $hosts = concat $hosts .Values.httpRoute.hostnames -}}
{{- end -}}
{{- $hosts | uniq | toJson -}}
{{- end -}}

{{- define "casement.labels" -}}
{{ include "casement.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The names of the public service within the cluster. */}}
{{- define "casement.hosts" -}}
{{- $name := include "casement.name" . -}}
{{- $space := .Release.Namespace -}}
{{- list $name (printf "%s.%s" $name $space) (printf "%s.%s.svc" $name $space) (printf "%s.%s.svc.cluster.local" $name $space) | toJson -}}
{{- end -}}

{{- define "casement.publicUrl" -}}
{{- if .Values.publicUrl -}}
{{- .Values.publicUrl -}}
{{- else if .Values.ingress.enabled -}}
{{- printf "%s://%s" (ternary "https" "http" (ne .Values.ingress.tlsSecret "")) .Values.ingress.host -}}
{{- else if .Values.httpRoute.enabled -}}
{{- printf "https://%s" (first .Values.httpRoute.hostnames) -}}
{{- else -}}
{{- printf "http://%s.%s.svc:%d" (include "casement.name" .) .Release.Namespace (int .Values.service.port) -}}
{{- end -}}
{{- end -}}

{{/* The configuration file. A number of YAML is a float in templates; the file has integers. */}}
{{- define "casement.configuration" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- $hosts := concat (include "casement.hosts" . | fromJsonArray) (include "casement.publicHosts" . | fromJsonArray) (default list $settings.allowed_host) -}}
{{- $_ := set $settings "allowed_host" ($hosts | uniq) -}}
{{- range $name, $value := $settings }}
{{- if kindIs "float64" $value }}
{{ $name }} = {{ if eq (floor $value) $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}
{{- else }}
{{ $name }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The variables of both containers. */}}
{{- define "casement.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: HOME
  value: /tmp
- name: CASEMENT_CONFIG
  value: /etc/casement/casement.toml
- name: CASEMENT_DATA_DIR
  value: /var/lib/casement/data
- name: CASEMENT_LISTEN
  value: {{ printf "%s:8080" .Values.listenAddress | quote }}
- name: CASEMENT_PUBLIC_URL
  value: {{ include "casement.publicUrl" . | quote }}
- name: CASEMENT_CLUSTER_LISTEN
  value: {{ printf "%s:8443" .Values.listenAddress | quote }}
- name: CASEMENT_CLUSTER_ADDRESS
  value: "$(POD_NAME).{{ include "casement.clusterName" . }}.{{ .Release.Namespace }}.svc:8443"
- name: CASEMENT_DRAIN_ON_TERM
  value: "true"
- name: CASEMENT_DRAIN_DEADLINE
  value: {{ int .Values.longestSession | quote }}
- name: CASEMENT_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.existingSecret | quote }}
      key: {{ .Values.database.secretKey | quote }}
- name: CASEMENT_MASTER_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .Values.masterKey.existingSecret | quote }}
      key: {{ .Values.masterKey.secretKey | quote }}
- name: CASEMENT_BLOB_URL
  value: {{ .Values.objectStore.url | quote }}
{{- with .Values.objectStore.endpoint }}
- name: CASEMENT_BLOB_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- with .Values.objectStore.region }}
- name: CASEMENT_BLOB_REGION
  value: {{ . | quote }}
{{- end }}
{{- if .Values.objectStore.pathStyle }}
- name: CASEMENT_BLOB_PATH_STYLE
  value: "true"
{{- end }}
{{- with .Values.objectStore.existingSecret }}
{{- range $key := list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" "AWS_SESSION_TOKEN" }}
- name: {{ $key }}
  valueFrom:
    secretKeyRef:
      name: {{ $.Values.objectStore.existingSecret | quote }}
      key: {{ $key }}
      {{- if eq $key "AWS_SESSION_TOKEN" }}
      optional: true
      {{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The rights of both containers: none, except that the visible /proc has no covered parts, because each sandbox mounts its own. */}}
{{- define "casement.rights" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
procMount: Unmasked
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "casement.mounts" -}}
- name: data
  mountPath: /var/lib/casement
- name: configuration
  mountPath: /etc/casement
  readOnly: true
- name: temporary
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
