ALTER TABLE api_keys ADD COLUMN policy jsonb;
