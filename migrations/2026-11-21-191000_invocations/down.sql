ALTER TABLE sessions DROP COLUMN invocation_id;
DROP TABLE invocations;
