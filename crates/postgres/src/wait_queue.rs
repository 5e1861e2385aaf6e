//! The wait queue of each pool.
//!
//! While no caller waits, [`WaitQueue::take_now`] leases in one statement. Otherwise a caller enters the wait queue and
//! checks once for idle browsers. From then on, a transaction that makes a browser idle also gives it to the oldest
//! ticket of a living node, which is notified when the transaction commits.
//!
//! A transaction that makes a browser idle locks the pool's wait queue (an advisory lock) before it does so, and a
//! caller that has entered the wait queue checks under the same lock. So either the check finds the browser, or the
//! transaction finds the ticket: no browser stays idle beside a waiting caller.
//!
//! A browser of a node that drains, or that sent no heartbeat for [`Node::LEASED_WITHIN`], is not leased, except that a
//! node does not count its own silence.

mod statements;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use casement_domain::audit::AuditEntry;
use casement_domain::browser::StartUrl;
use casement_domain::name::LabelName;
use casement_domain::node::Node;
use casement_domain::pool::{
    ImmediateLease, KnownBrowser, LeaseRequest, QueueEntered, QueueEntry, TicketOutcome, WaitQueue,
};
use casement_domain::session::{Session, SessionEvent, Tags};
use casement_domain::{NodeId, PoolId, SessionId, StoreError, TicketId};
use diesel::dsl::{exists, sql};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::audit::{AuditRow, PgAudit};
use crate::column::{Column, Stored};
use crate::database::Database;
use crate::decisions::Decided;
use crate::error::CallError;
use crate::query::all;
use crate::schema::{browser_pools, browsers, pool_waiters};
use crate::session::{self, SessionRow};
use statements::{GrantTicket, LeaseIdleBrowser, LeaseKnownBrowser, LeaseTarget, pg_advisory_xact_lock};

/// The maximum time between making an audit record and sending the statement that stores it. Exports wait as long for
/// late records.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);

/// Deletes tickets that no caller can ask for any more. The seven days are a margin against clocks that are set
/// forward.
const FORGET: &str =
    "DELETE FROM pool_waiters WHERE node_id = $1 AND outcome IS NULL AND expires_at < now() - interval '7 days'";

/// The wait queue in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgWaitQueue {
    database: Database,
    audit: PgAudit,
}

impl PgWaitQueue {
    /// Creates the repository on this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { audit: PgAudit::new(database.clone()), database }
    }

    async fn taken(
        &self,
        pool: PoolId,
        node: NodeId,
        now: OffsetDateTime,
        take: impl AsyncFnOnce(&AsyncPgConnection) -> Result<Option<SessionRow>, CallError>,
    ) -> Result<ImmediateLease, StoreError> {
        let work = async |connection: &AsyncPgConnection| match take(connection).await {
            Ok(Some(row)) => Ok(ImmediateLease::Leased(Box::new(row.value()?))),
            Ok(None) if pool_exists(connection, pool).await? => Ok(ImmediateLease::Busy),
            Ok(None) => Ok(ImmediateLease::PoolGone),
            Err(error) if error.violated() == Some(session::NAME_KEY) => {
                // PostgreSQL reports the error before it unlocks the browser, and answers the next statement afterwards. A
                // grant in between would skip the browser.
                pool_exists(connection, pool).await?;
                Ok(ImmediateLease::NameTaken)
            }
            Err(error) => Err(error),
        };
        let taken = self.database.lease("wait_queue.take_now", work).await;
        if !matches!(taken, Ok(ImmediateLease::Leased(_) | ImmediateLease::Busy)) {
            // A browser that the statement locked but did not lease was skipped by concurrent checks.
            self.grant_idle_browsers(pool, node, now).await?;
        }
        taken
    }

    /// Gives idle browsers to waiting tickets, in a transaction of its own, on behalf of `node`.
    async fn grant_idle_browsers(&self, pool: PoolId, node: NodeId, now: OffsetDateTime) -> Result<(), StoreError> {
        let avoided = self.database.avoided();
        let granting = async |connection: &mut AsyncPgConnection| {
            lock(connection, pool).await?;
            if pool_exists(connection, pool).await? {
                hand_over(connection, pool, node, &avoided, now).await
            } else {
                // The pool was deleted between the check and the insert of a ticket.
                dissolve(connection, pool).await
            }
        };
        let decided = self.database.transaction("wait_queue.grant_idle_browsers", granting).await?;
        self.database.report(decided).await;
        Ok(())
    }
}

impl<'a> LeaseTarget<'a> {
    fn of(pool: PoolId, lease: &'a LeaseRequest, unreachable: Vec<Column<NodeId>>, now: OffsetDateTime) -> Self {
        Self {
            pool: Column(pool),
            session: Column(lease.session),
            name: lease.name.as_ref().map(|name| name.as_str()),
            start_url: lease.start_url.as_ref().map(|url| url.as_str()),
            tags: Column(lease.tags.clone()),
            telemetry: Stored::of(&lease.telemetry),
            node: Column(lease.node),
            avoided: lease.avoided.iter().copied().map(Column).chain(unreachable).collect(),
            now,
        }
    }
}

/// Locks the pool's wait queue until the transaction ends. Must be called before any row is locked.
pub(crate) async fn lock(connection: &mut AsyncPgConnection, pool: PoolId) -> Result<(), CallError> {
    diesel::select(pg_advisory_xact_lock(lock_number(pool))).execute(connection).await?;
    Ok(())
}

/// The random half of the id. Two pools with the same number would only wait for each other.
fn lock_number(pool: PoolId) -> i64 {
    let bytes = pool.ulid().0.to_be_bytes();
    i64::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]])
}

pub(crate) async fn pool_exists(mut connection: &AsyncPgConnection, pool: PoolId) -> Result<bool, CallError> {
    let row = browser_pools::table.find(Column(pool)).filter(browser_pools::deleted_at.is_null());
    Ok(diesel::select(exists(row)).get_result(&mut connection).await?)
}

/// Gives idle browsers to the tickets of the wait queue in their order, until either runs out, on behalf of `node`, but neither
/// browsers nor tickets of the `avoided` nodes.
/// Returns the decided tickets, which the caller [reports](Database::report) after the commit. The caller has locked the
/// wait queue.
pub(crate) async fn hand_over(
    connection: &mut AsyncPgConnection,
    pool: PoolId,
    node: NodeId,
    avoided: &[Column<NodeId>],
    at: OffsetDateTime,
) -> Result<Vec<Decided>, CallError> {
    let id = Column(pool);
    let give = GrantTicket {
        pool: id,
        now: at,
        silent_after_seconds: Node::LOST_AFTER.as_seconds_f64(),
        node: Column(node),
        leased_within_seconds: Node::LEASED_WITHIN.as_seconds_f64(),
        avoided,
    };
    let mut decided = Vec::new();
    loop {
        let idle = browsers::table.filter(browsers::pool_id.eq(id)).filter(browsers::state.eq("idle"));
        let waiting = pool_waiters::table.filter(pool_waiters::pool_id.eq(id)).filter(pool_waiters::outcome.is_null());
        // Mostly one of the two is absent, and this check is cheaper than the statement.
        if !diesel::select(exists(idle).and(exists(waiting))).get_result::<bool>(connection).await? {
            return Ok(decided);
        }
        match (&give).get_result::<(Column<_>, Column<_>)>(connection).await.optional()? {
            Some((Column(ticket), Column(node))) => decided.push((node, ticket)),
            None => return Ok(decided),
        }
    }
}

/// Ends the waiting tickets of a deleted pool. Returns them, as [`hand_over`] does.
pub(crate) async fn dissolve(connection: &mut AsyncPgConnection, pool: PoolId) -> Result<Vec<Decided>, CallError> {
    let waiting = pool_waiters::table.filter(pool_waiters::pool_id.eq(Column(pool)));
    let waiting = waiting.filter(pool_waiters::outcome.is_null());
    let reported = diesel::update(waiting).set(pool_waiters::outcome.eq("pool_gone"));
    let reported = reported.returning((pool_waiters::node_id, pool_waiters::id));
    let reported = reported.get_results::<(Column<_>, Column<_>)>(connection).await?;
    Ok(reported.into_iter().map(|(Column(node), Column(ticket))| (node, ticket)).collect())
}

#[derive(Insertable)]
#[diesel(table_name = pool_waiters)]
struct WaiterRow {
    id: Column<TicketId>,
    pool_id: Column<PoolId>,
    node_id: Column<NodeId>,
    position: Option<i64>,
    session_id: Column<SessionId>,
    name: Option<Column<LabelName>>,
    start_url: Option<Column<StartUrl>>,
    tags: Column<Tags>,
    telemetry: Option<Vec<String>>,
    created_at: OffsetDateTime,
}

fn waiter_row(place: &QueueEntry, at: OffsetDateTime) -> WaiterRow {
    let lease = place.lease.clone();
    WaiterRow {
        id: Column(place.ticket),
        pool_id: Column(place.pool),
        node_id: Column(place.node),
        position: place.position,
        session_id: Column(lease.session),
        name: lease.name.map(Column),
        start_url: lease.start_url.map(Column),
        tags: Column(lease.tags),
        telemetry: Stored::of(&lease.telemetry),
        created_at: at,
    }
}

/// The outcome of a ticket whose row was deleted.
async fn outcome_of(
    connection: &mut AsyncPgConnection,
    outcome: Option<&str>,
    session: SessionId,
) -> Result<TicketOutcome, CallError> {
    Ok(match outcome {
        Some("granted") => match session::find(connection, session).await? {
            Some(session) => TicketOutcome::Granted(Box::new(session)),
            None => TicketOutcome::Gone,
        },
        Some("name_taken") => TicketOutcome::NameTaken,
        _ => TicketOutcome::Gone,
    })
}

/// Ends a granted session whose caller has disconnected. Its browser ends too, since it may have been found and used;
/// so nothing is granted.
async fn take_back(connection: &mut AsyncPgConnection, granted: Session, at: OffsetDateTime) -> Result<(), CallError> {
    if let Ok(next) = granted.on(SessionEvent::StartFailed, at) {
        let (_moved_on, _nothing) = session::store_end(connection, granted.state, &next, &[]).await?;
    }
    Ok(())
}

#[async_trait]
impl WaitQueue for PgWaitQueue {
    async fn take_now(
        &self,
        pool: PoolId,
        lease: &LeaseRequest,
        now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError> {
        let taking = LeaseIdleBrowser {
            taking: LeaseTarget::of(pool, lease, self.database.avoided(), now),
            silent_after_seconds: Node::LOST_AFTER.as_seconds_f64(),
            leased_within_seconds: Node::LEASED_WITHIN.as_seconds_f64(),
        };
        let take =
            async |mut connection: &AsyncPgConnection| Ok(taking.get_result(&mut connection).await.optional()?);
        self.taken(pool, lease.node, now, take).await
    }

    async fn take_recorded(
        &self,
        known: &KnownBrowser,
        lease: &LeaseRequest,
        record: &AuditEntry,
        now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError> {
        let began = Instant::now();
        let take = async |mut connection: &AsyncPgConnection| {
            if began.elapsed() > RECORD_TIMEOUT {
                return Ok(None);
            }
            let Some(owner) = self.audit.owner(connection, record).await? else { return Ok(None) };
            let record = AuditRow::of(record, &owner);
            let taking = LeaseKnownBrowser {
                taking: LeaseTarget::of(known.pool, lease, Vec::new(), now),
                browser: Column(known.browser),
                unchanged_since: known.unchanged_since,
                record,
            };
            Ok(taking.get_result(&mut connection).await.optional()?)
        };
        self.taken(known.pool, lease.node, now, take).await
    }

    async fn enter(&self, place: &QueueEntry, now: OffsetDateTime) -> Result<QueueEntered, StoreError> {
        let entering = async |connection: &mut AsyncPgConnection| {
            if !pool_exists(connection, place.pool).await? {
                return Ok(None);
            }
            let expires = sql::<sql_types::Timestamptz>("now() + make_interval(secs => ");
            let expires = expires.bind::<sql_types::Double, _>(place.lasts.as_seconds_f64()).sql(")");
            let expires = pool_waiters::expires_at.eq(expires);
            let inserting = diesel::insert_into(pool_waiters::table).values((waiter_row(place, now), expires));
            let position: i64 = inserting.returning(pool_waiters::position).get_result(connection).await?;
            Ok(Some(position))
        };
        let Some(position) = self.database.call("wait_queue.enter", entering).await? else {
            return Ok(QueueEntered::PoolGone);
        };
        self.grant_idle_browsers(place.pool, place.node, now).await?;
        Ok(QueueEntered::Yes(position))
    }

    async fn outcome(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = Column(ticket);
            let decided = pool_waiters::table.find(id).filter(pool_waiters::outcome.is_not_null());
            let leaving = diesel::delete(decided).returning((pool_waiters::outcome, pool_waiters::session_id));
            let left: Option<(Option<String>, Column<SessionId>)> = leaving.get_result(connection).await.optional()?;
            if let Some((outcome, Column(session))) = left {
                return outcome_of(connection, outcome.as_deref(), session).await;
            }
            let there: bool = diesel::select(exists(pool_waiters::table.find(id))).get_result(connection).await?;
            Ok(if there { TicketOutcome::Waiting } else { TicketOutcome::Gone })
        };
        self.database.transaction("wait_queue.outcome", work).await
    }

    async fn leave(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let leaving = diesel::delete(pool_waiters::table.find(Column(ticket)));
            let leaving = leaving.returning((pool_waiters::outcome, pool_waiters::session_id));
            let left: Option<(Option<String>, Column<SessionId>)> = leaving.get_result(connection).await.optional()?;
            match left {
                Some((outcome, Column(session))) => outcome_of(connection, outcome.as_deref(), session).await,
                None => Ok(TicketOutcome::Gone),
            }
        };
        self.database.transaction("wait_queue.leave", work).await
    }

    async fn decided(&self, node: NodeId) -> Result<Vec<TicketId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            diesel::sql_query(FORGET).bind::<sql_types::Uuid, _>(Column(node)).execute(connection).await?;
            let rows = pool_waiters::table.filter(pool_waiters::node_id.eq(Column(node)));
            let rows = rows.filter(pool_waiters::outcome.is_not_null()).order(pool_waiters::position);
            let decided: Vec<TicketId> = all::<_, Column<_>, _>(connection, rows.select(pool_waiters::id)).await?;
            let idle = browsers::table.filter(browsers::pool_id.eq(pool_waiters::pool_id.nullable()));
            let idle = idle.filter(browsers::state.eq("idle"));
            let stuck = pool_waiters::table.filter(pool_waiters::node_id.eq(Column(node)));
            let stuck = stuck.filter(pool_waiters::outcome.is_null()).filter(exists(idle));
            let stuck = stuck
                .select((pool_waiters::pool_id, sql::<sql_types::Timestamptz>("now()")))
                .distinct_on(pool_waiters::pool_id);
            let stuck: Vec<(Column<PoolId>, OffsetDateTime)> = stuck.load(connection).await?;
            Ok((decided, stuck))
        };
        let (decided, stuck) = self.database.call("wait_queue.decided", work).await?;
        // For browsers whose server was killed or cut off between freeing them and granting them.
        for (Column(pool), at) in stuck {
            self.grant_idle_browsers(pool, node, at).await?;
        }
        Ok(decided)
    }

    async fn clear(&self, node: NodeId, now: OffsetDateTime) -> Result<(), StoreError> {
        let waiting = async |connection: &mut AsyncPgConnection| {
            let rows = pool_waiters::table.filter(pool_waiters::node_id.eq(Column(node)));
            let undecided = rows.filter(pool_waiters::outcome.is_null());
            diesel::delete(undecided).execute(connection).await?;
            Ok(rows.select(pool_waiters::id).load::<Column<TicketId>>(connection).await?)
        };
        let decided = self.database.call("wait_queue.clear", waiting).await?;
        for ticket in decided {
            // One transaction per ticket: each locks the wait queue of its pool, and two are never locked at once.
            let taking_back = async |connection: &mut AsyncPgConnection| {
                let found = pool_waiters::table.find(ticket).select((pool_waiters::pool_id, pool_waiters::session_id));
                let found: Option<(Column<PoolId>, Column<_>)> = found.get_result(connection).await.optional()?;
                let Some((Column(pool), Column(session))) = found else { return Ok(()) };
                lock(connection, pool).await?;
                diesel::delete(pool_waiters::table.find(ticket)).execute(connection).await?;
                match session::find(connection, session).await? {
                    Some(granted) => take_back(connection, granted, now).await,
                    None => Ok(()),
                }
            };
            self.database.transaction("wait_queue.take_back", taking_back).await?;
        }
        Ok(())
    }
}
