ALTER TABLE sessions DROP COLUMN memory_places, DROP COLUMN memory_mib;
ALTER TABLE browsers DROP COLUMN memory_places, DROP COLUMN memory_mib;
ALTER TABLE browser_pools DROP COLUMN memory_places, DROP COLUMN memory_mib;
