-- The projects whose keys may log in with a provider. Of those that there are, none: each is lent by whoever has the organization's key.
ALTER TABLE credential_providers ADD COLUMN project_ids uuid[] NOT NULL DEFAULT '{}';
-- Whether a key of the whole organization has chosen the credential; of what there is, it is not known.
ALTER TABLE auth_connections ADD COLUMN organization_credential boolean NOT NULL DEFAULT false;
-- Whether a login runs in the session.
ALTER TABLE sessions ADD COLUMN for_login boolean NOT NULL DEFAULT false;
UPDATE sessions SET for_login = true WHERE id IN (SELECT session_id FROM auth_flows WHERE open);
