-- What one person did, however long ago.
CREATE INDEX audit_records_user_idx ON audit_records (organization_id, user_id, at, id);
