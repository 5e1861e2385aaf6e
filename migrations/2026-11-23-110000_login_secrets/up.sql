-- The projects whose keys may log in with a provider. None for existing providers: a key of the organization has to add
-- them.
ALTER TABLE credential_providers ADD COLUMN project_ids uuid[] NOT NULL DEFAULT '{}';
-- True if a key of the organization has selected the credential. Unknown for existing connections.
ALTER TABLE auth_connections ADD COLUMN organization_credential boolean NOT NULL DEFAULT false;
-- True if the session belongs to a login flow.
ALTER TABLE sessions ADD COLUMN for_login boolean NOT NULL DEFAULT false;
UPDATE sessions SET for_login = true WHERE id IN (SELECT session_id FROM auth_flows WHERE open);
