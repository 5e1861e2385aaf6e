DROP TABLE telemetry_events;
DROP TABLE telemetry_counts;
ALTER TABLE pool_waiters DROP COLUMN telemetry;
ALTER TABLE sessions DROP COLUMN telemetry;
ALTER TABLE browser_pools DROP COLUMN telemetry;
