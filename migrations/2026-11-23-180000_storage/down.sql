DROP TABLE stored_bytes;
ALTER TABLE telemetry_counts DROP COLUMN bytes, DROP COLUMN untold, DROP COLUMN storage_limit, DROP COLUMN told_at;
