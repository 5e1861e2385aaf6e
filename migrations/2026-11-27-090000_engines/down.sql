ALTER TABLE sessions DROP COLUMN engine;
ALTER TABLE browsers DROP COLUMN engine;
ALTER TABLE browser_pools DROP COLUMN blocked_reason, DROP COLUMN engine;
