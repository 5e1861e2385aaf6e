-- The time zone and the locale of browsers, null for the installation's.
ALTER TABLE browser_pools ADD COLUMN time_zone text, ADD COLUMN locale text;
ALTER TABLE browsers ADD COLUMN time_zone text, ADD COLUMN locale text;
ALTER TABLE sessions ADD COLUMN time_zone text, ADD COLUMN locale text;
