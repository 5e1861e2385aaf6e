ALTER TABLE browsers DROP COLUMN generation;
ALTER TABLE browser_pools DROP COLUMN generation;
