ALTER TABLE credential_providers DROP COLUMN is_onepassword;
