ALTER TABLE sessions DROP COLUMN locale, DROP COLUMN time_zone;
ALTER TABLE browsers DROP COLUMN locale, DROP COLUMN time_zone;
ALTER TABLE browser_pools DROP COLUMN locale, DROP COLUMN time_zone;
