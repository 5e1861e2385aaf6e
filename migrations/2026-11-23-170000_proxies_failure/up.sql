-- Why the last check found that a proxy cannot be used; null where it can, and where it was not noted yet.
ALTER TABLE proxies ADD COLUMN failure text;
ALTER TABLE proxies ADD CONSTRAINT proxies_failure_check CHECK (
    failure IN ('unreachable', 'timeout', 'closed', 'reset', 'protocol', 'tls', 'authentication', 'unknown', 'target')
);
