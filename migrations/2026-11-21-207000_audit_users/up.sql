-- For queries of one user's records in any period.
CREATE INDEX audit_records_user_idx ON audit_records (organization_id, user_id, at, id);
