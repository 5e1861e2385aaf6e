DROP INDEX browser_pools_extension_ids_idx;
ALTER TABLE browsers DROP COLUMN extension_ids;
ALTER TABLE sessions DROP COLUMN extension_ids;
ALTER TABLE browser_pools DROP COLUMN extension_ids;
DROP TABLE extensions;
