DROP TABLE pool_waiters;
