ALTER TABLE sessions DROP COLUMN for_login;
ALTER TABLE auth_connections DROP COLUMN organization_credential;
ALTER TABLE credential_providers DROP COLUMN project_ids;
