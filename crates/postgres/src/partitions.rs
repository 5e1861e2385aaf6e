//! Tables that are partitioned by time: a partition for each month or day, created ahead and dropped when it is too
//! old, and one for all other times, so that every row can be stored.

use casement_domain::StoreError;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::{Date, Duration, Month, OffsetDateTime, UtcOffset};

use crate::database::Database;
use crate::error::CallError;

/// The time that one partition spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    Month,
    Day,
}

/// The number of partitions that are created ahead, including the current one.
const AHEAD: u32 = 3;
/// The number of rows that one statement deletes, so that it ends soon and holds few locks.
pub(crate) const DELETED_AT_ONCE: u32 = 5000;
/// The maximum number of such statements in one run, so that a run ends. The next one goes on.
const MAX_DELETIONS: u32 = 1000;

/// A table that is partitioned by its column `at`. The names of the partitions begin with that of the table; `…_other`
/// takes all other times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partitioned {
    pub(crate) table: &'static str,
    pub(crate) span: Span,
}

impl Span {
    fn first(self, at: OffsetDateTime) -> Date {
        let date = at.to_offset(UtcOffset::UTC).date();
        match self {
            Self::Month => date.replace_day(1).unwrap_or(date),
            Self::Day => date,
        }
    }

    fn next(self, first: Date) -> Date {
        let next = match (self, first.month()) {
            (Self::Day, _) => first.checked_add(Duration::DAY),
            (Self::Month, Month::December) => Date::from_calendar_date(first.year() + 1, Month::January, 1).ok(),
            (Self::Month, month) => Date::from_calendar_date(first.year(), month.next(), 1).ok(),
        };
        next.unwrap_or(first)
    }

    /// The regular expression of the date in the name of a partition.
    const fn pattern(self) -> &'static str {
        match self {
            Self::Month => "[0-9]{4}_[0-9]{2}",
            Self::Day => "[0-9]{4}_[0-9]{2}_[0-9]{2}",
        }
    }
}

impl Partitioned {
    /// Creates the partitions for rows from `now` on, and drops those that ended before `oldest`;
    /// [`forget`](Self::forget) deletes the other rows of that time. Runs in the caller's transaction. Fails if another transaction locks the table.
    pub(crate) async fn tidy(
        self,
        connection: &mut AsyncPgConnection,
        now: OffsetDateTime,
        oldest: OffsetDateTime,
    ) -> Result<(), CallError> {
        // Several nodes do this at once. One waits for the other here, where nobody else waits.
        let alone = format!("SELECT pg_advisory_xact_lock('{}'::regclass::oid::bigint)", self.table);
        diesel::sql_query(alone).execute(connection).await?;
        // A dump locks all tables for minutes. Waiting for it would delay all calls that come after this one, so the work
        // is left to the next run; until then, new rows go to `…_other`.
        diesel::sql_query("SET LOCAL lock_timeout = '500ms'").execute(connection).await?;
        let mut first = self.span.first(now);
        for _ in 0..AHEAD {
            let next = self.span.next(first);
            self.make(connection, first, next).await?;
            first = next;
        }
        self.drop_before(connection, oldest).await
    }

    /// The name of a partition, such as `audit_records_2026_11`. It contains no input, so it needs no quoting.
    fn name(self, first: Date) -> String {
        let month = format!("{}_{:04}_{:02}", self.table, first.year(), u8::from(first.month()));
        match self.span {
            Span::Month => month,
            Span::Day => format!("{month}_{:02}", first.day()),
        }
    }

    async fn make(self, connection: &mut AsyncPgConnection, first: Date, next: Date) -> Result<(), CallError> {
        let midnight =
            |date: Date| format!("{:04}-{:02}-{:02}T00:00:00Z", date.year(), u8::from(date.month()), date.day());
        let (table, name, from, to) = (self.table, self.name(first), midnight(first), midnight(next));
        // Several nodes may do this at once, and `…_other` may already have rows of that time.
        if exists(connection, &name).await? {
            return Ok(());
        }
        for sql in [
            format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"),
            format!("CREATE TABLE IF NOT EXISTS {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"),
            format!(
                "WITH moved AS (DELETE FROM {table}_other WHERE at >= '{from}' AND at < '{to}' RETURNING *)
                 INSERT INTO {name} SELECT * FROM moved"
            ),
            format!(
                "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = '{name}'::regclass) THEN
                     ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{from}') TO ('{to}');
                 END IF; END $$"
            ),
        ] {
            diesel::sql_query(sql).execute(connection).await?;
        }
        Ok(())
    }

    /// Deletes the rows from before `oldest` that dropping partitions leaves: those in `…_other` and, if partitions are
    /// months, those in the partition that has later rows too. Each statement is a transaction of its own.
    pub(crate) async fn forget(
        self,
        database: &Database,
        operation: &'static str,
        oldest: OffsetDateTime,
    ) -> Result<(), StoreError> {
        for _ in 0..MAX_DELETIONS {
            let work = async |connection: &mut AsyncPgConnection| self.delete_before(connection, oldest).await;
            if database.call(operation, work).await? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Deletes some rows from before `oldest`; returns their number.
    async fn delete_before(
        self,
        connection: &mut AsyncPgConnection,
        oldest: OffsetDateTime,
    ) -> Result<usize, CallError> {
        let other = format!("{}_other", self.table);
        let mixed = Some(self.name(self.span.first(oldest))).filter(|_| self.span == Span::Month);
        let mut deleted = 0;
        for name in mixed.into_iter().chain([other]) {
            if !exists(connection, &name).await? {
                continue;
            }
            let some = format!(
                "DELETE FROM {name} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {name} WHERE at < $1 ORDER BY at LIMIT $2))"
            );
            let some = diesel::sql_query(some).bind::<Timestamptz, _>(oldest);
            deleted += some.bind::<BigInt, _>(i64::from(DELETED_AT_ONCE)).execute(connection).await?;
        }
        Ok(deleted)
    }

    /// Drops the partitions that ended before `oldest`.
    async fn drop_before(self, connection: &mut AsyncPgConnection, oldest: OffsetDateTime) -> Result<(), CallError> {
        let (table, pattern) = (self.table, self.span.pattern());
        let old: Vec<Named> = diesel::sql_query(format!(
            "SELECT relname::text AS relname FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
             WHERE inhparent = '{table}'::regclass AND relname ~ '^{table}_{pattern}$' AND relname < $1"
        ))
        .bind::<Text, _>(self.name(self.span.first(oldest)))
        .load(connection)
        .await?;
        for Named { relname } in old {
            diesel::sql_query(format!("DROP TABLE {relname}")).execute(connection).await?;
        }
        Ok(())
    }
}

/// Whether there is a table of this name in the schema that connections use.
async fn exists(connection: &mut AsyncPgConnection, name: &str) -> Result<bool, CallError> {
    let there = diesel::sql_query("SELECT to_regclass($1) IS NOT NULL AS is_there").bind::<Text, _>(name);
    Ok(there.get_result::<Existence>(connection).await?.is_there)
}

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Existence {
    #[diesel(sql_type = Bool)]
    is_there: bool,
}

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Named {
    #[diesel(sql_type = Text)]
    relname: String,
}

#[cfg(test)]
mod tests {
    use time::macros::{date, datetime};

    use super::*;

    #[test]
    fn spans_follow_one_another_over_the_ends_of_months_and_years() {
        let at = datetime!(2026-12-31 23:59 -02:00);
        let months = Partitioned { table: "audit_records", span: Span::Month };
        let days = Partitioned { table: "telemetry_events", span: Span::Day };
        assert_eq!((Span::Month.first(at), Span::Day.first(at)), (date!(2027 - 01 - 01), date!(2027 - 01 - 01)));
        assert_eq!(Span::Month.next(date!(2026 - 12 - 01)), date!(2027 - 01 - 01));
        assert_eq!(Span::Day.next(date!(2028 - 02 - 28)), date!(2028 - 02 - 29));
        assert_eq!(months.name(date!(2026 - 12 - 01)), "audit_records_2026_12");
        assert_eq!(days.name(date!(2026 - 02 - 01)), "telemetry_events_2026_02_01");
    }
}
