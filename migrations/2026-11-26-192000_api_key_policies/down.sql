-- Without its policy, a key would open everything.
UPDATE api_keys SET deleted_at = now() WHERE policy IS NOT NULL AND deleted_at IS NULL;
ALTER TABLE api_keys DROP COLUMN policy;
