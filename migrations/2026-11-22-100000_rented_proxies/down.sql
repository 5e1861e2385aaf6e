ALTER TABLE proxies DROP CONSTRAINT proxies_config_check;
-- Sessions and connections with a rented proxy must not connect directly instead, so it becomes a proxy that does not
-- exist.
UPDATE proxies SET type = 'custom', host = 'rented.invalid', port = 1 WHERE type <> 'custom';
ALTER TABLE proxies DROP COLUMN exit;
ALTER TABLE proxies ALTER COLUMN host SET NOT NULL;
ALTER TABLE proxies ALTER COLUMN port SET NOT NULL;
