//! Sessions: admitted by the limits, changed by compare-and-set.

mod columns;

use async_trait::async_trait;
use casement_domain::browser::{Browser, Location, StartUrl, Viewport};
use casement_domain::name::LabelName;
use casement_domain::network::{AllowlistChange, AllowlistError, Network};
use casement_domain::organization::{CapacityRequest, admit, admit_on_node};
use casement_domain::page::{Listed, Page};
use casement_domain::profile::LoadedProfile;
use casement_domain::session::{
    Created, EndReason, IdOrName, Session, SessionFilter, SessionRepository, SessionState, SessionUpdate, StatusFilter,
    Tags,
};
use casement_domain::telemetry::Capture;
use casement_domain::{
    BrowserId, InvocationId, NodeId, OrganizationId, PoolId, ProfileId, ProjectId, ProxyId, Replaced, SessionId,
    StoreError,
};
use diesel::dsl::{Eq, Filter, Find, not};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::browser::BrowserRow;
use crate::changes::{Change, report};
use crate::column::{Column, Stored, row};
use crate::database::Database;
use crate::decisions::Decided;
use crate::error::{CallError, if_violated};
use crate::query::{self, contains, counted};
use crate::schema::{browser_pools, browsers, session_ignored_fields, sessions};
use crate::shape::{shape_columns, with_location, with_viewport};
use crate::telemetry::export_from_now;
use crate::{invocation, organization, project, usage, wait_queue};

use self::columns::PoolColumns;
pub(crate) use self::columns::StateColumns;

shape_columns!(ShapeColumns, sessions);

/// The constraint that keeps names unique.
pub(crate) const NAME_KEY: &str = "sessions_name_key";

/// The end reasons of sessions that no caller ever received. Those sessions are not listed.
const NEVER_HAD: [&str; 2] = [EndReason::StartFailed.as_str(), EndReason::Undelivered.as_str()];

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = sessions, check_for_backend(diesel::pg::Pg))]
    pub(crate) struct SessionRow for Session {
        id: Column<SessionId>,
        project: Column<ProjectId> as project_id,
        node: Column<NodeId> as node_id,
        browser: Option<Column<BrowserId>> as browser_id,
        #[diesel(embed)]
        pool: PoolColumns,
        #[diesel(embed)]
        shape: ShapeColumns,
        name: Option<Column<LabelName>>,
        timeout_seconds: Column<u32>,
        start_url: Option<Column<StartUrl>>,
        tags: Column<Tags>,
        telemetry: Option<Vec<String>>,
        #[diesel(embed)]
        state: StateColumns,
        created_at: OffsetDateTime,
        last_active_at: OffsetDateTime,
        ended_at: Option<OffsetDateTime>,
        invocation: Option<Column<InvocationId>> as invocation_id,
        for_login: bool,
    }
}

/// Sessions in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgSessions {
    database: Database,
    node: Option<NodeId>,
    /// The places beyond which this node refuses new sessions.
    node_limit: Option<u32>,
}

impl PgSessions {
    /// Creates the repository on this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, node: None, node_limit: None }
    }

    /// Names this node: if it ends the session of another node, that node is notified.
    #[must_use]
    pub fn on_node(self, node: NodeId) -> Self {
        Self { node: Some(node), ..self }
    }

    /// Limits the places of the node on which this repository creates sessions: those of its browsers, also of pools, and
    /// of its sessions that start.
    #[must_use]
    pub fn limited_to(self, node_limit: Option<u32>) -> Self {
        Self { node_limit, ..self }
    }
}

pub(crate) async fn find(mut connection: &AsyncPgConnection, id: SessionId) -> Result<Option<Session>, CallError> {
    query::find(&mut connection, sessions::table.find(Column(id)).select(SessionRow::as_select())).await
}

/// Stores the end of a session, and ends its browser or returns it to the pool, in the caller's transaction. Also returns
/// the tickets that were decided, which the caller [reports](crate::database::Database::report) after the commit.
pub(crate) async fn store_end(
    connection: &mut AsyncPgConnection,
    state_before: SessionState,
    next: &Session,
    avoided: &[Column<NodeId>],
) -> Result<(Replaced, Vec<Decided>), CallError> {
    let at = next.ended_at.unwrap_or(next.last_active_at);
    let goes_back = next.pool.as_ref().filter(|_| next.leaves_its_browser_untouched()).map(|pool| pool.id);
    if let Some(pool) = goes_back {
        // Before any row is locked, since a transaction with the lock of the wait queue may wait for rows.
        wait_queue::lock(connection, pool).await?;
    }
    let row = sessions::table.find(Column(next.id)).filter(sessions::state.eq(state_before.as_str()));
    let ending = (StateColumns::of(&next.state), sessions::ended_at.eq(next.ended_at));
    if diesel::update(row).set(ending).execute(connection).await? == 0 {
        return Ok((Replaced::LostRace, Vec::new()));
    }
    let browser = browsers::table.filter(browsers::session_id.eq(Column(next.id)));
    let browser = browser.filter(browsers::state.eq("leased"));
    match goes_back {
        Some(pool) if wait_queue::pool_exists(connection, pool).await? => {
            let current = browser_pools::table.find(Column(pool)).select(browser_pools::generation).single_value();
            let idle = (browsers::state.eq("idle"), browsers::session_id.eq(None::<Uuid>));
            let current = browser.filter(browsers::generation.nullable().eq(current));
            diesel::update(current).set(idle).execute(connection).await?;
            // A browser that is still leased is of an earlier generation, discarded while it was leased.
            diesel::update(browser).set(browsers::state.eq("ending")).execute(connection).await?;
            Ok((Replaced::Yes, wait_queue::hand_over(connection, pool, next.node, avoided, at).await?))
        }
        _ => {
            diesel::update(browser).set(browsers::state.eq("ending")).execute(connection).await?;
            Ok((Replaced::Yes, Vec::new()))
        }
    }
}

#[async_trait]
impl SessionRepository for PgSessions {
    async fn create(
        &self,
        organization: OrganizationId,
        session: &Session,
        browser: Option<Browser>,
    ) -> Result<Created, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let Some(held) = organization::lock(connection, organization).await? else {
                return Ok(Created::ProjectGone);
            };
            let Some(owner) = project::not_deleted(connection, organization, session.project).await? else {
                return Ok(Created::ProjectGone);
            };
            if let Some(invocation) = session.invocation
                && !invocation::is_unfinished(connection, session.project, invocation).await?
            {
                return Ok(Created::NoInvocation);
            }
            let used = usage::of(connection, owner.id, organization, None).await?;
            let caps = owner.caps_in_force(&held);
            let ask = CapacityRequest::Session { places: session.shape.places() };
            if let Err(refused) = admit((&caps, used.project), (&held.caps, used.organization), ask) {
                return Ok(Created::LimitExceeded(refused));
            }
            // No other session is added meanwhile, because the organization is locked.
            if let Some(limit) = self.node_limit {
                let used = usage::of_node(connection, session.node).await?;
                if let Err(refused) = admit_on_node(limit, used, session.shape.places()) {
                    return Ok(Created::LimitExceeded(refused));
                }
            }
            diesel::insert_into(sessions::table).values(SessionRow::of(session)).execute(connection).await?;
            if let Some(browser) = &browser {
                diesel::insert_into(browsers::table).values(BrowserRow::of(browser)).execute(connection).await?;
            }
            Ok(Created::Yes)
        };
        self.database.transaction_or("session.create", work, if_violated(&[NAME_KEY], Created::NameTaken)).await
    }

    async fn activate(&self, current: &Session, next: &Session, browser: &Browser) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = sessions::table.find(Column(current.id));
            let row = row.filter(sessions::state.eq(current.state.as_str()));
            let active = (
                sessions::state.eq(next.state.as_str()),
                sessions::browser_id.eq(next.browser.map(Column)),
                sessions::last_active_at.eq(next.last_active_at),
            );
            if diesel::update(row).set(active).execute(connection).await? == 0 {
                return Ok(Replaced::LostRace);
            }
            diesel::insert_into(browsers::table).values(BrowserRow::of(browser)).execute(connection).await?;
            Ok(Replaced::Yes)
        };
        self.database.transaction("session.activate", work).await
    }

    async fn end(&self, current: &Session, next: &Session) -> Result<Replaced, StoreError> {
        let avoided = self.database.avoided();
        let work = async |connection: &mut AsyncPgConnection| {
            let (replaced, decided) = store_end(connection, current.state, next, &avoided).await?;
            if replaced == Replaced::Yes && self.node.is_some_and(|node| node != next.node) {
                report(connection, Change::SessionEnded(next.id)).await?;
            }
            Ok((replaced, decided))
        };
        let (replaced, decided) = self.database.transaction("session.end", work).await?;
        self.database.report(decided).await;
        Ok(replaced)
    }

    async fn find(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        self.database.read("session.find", async |connection| find(connection, id).await).await
    }

    async fn find_in_project(
        &self,
        project: ProjectId,
        which: &IdOrName<SessionId>,
        include_ended: bool,
    ) -> Result<Option<Session>, StoreError> {
        let mut rows = sessions::table.filter(sessions::project_id.eq(Column(project))).into_boxed();
        rows = match which {
            IdOrName::Id(id) => rows.filter(sessions::id.eq(Column(*id))),
            IdOrName::Name(name) => rows.filter(sessions::name.eq(name)),
        };
        rows = if include_ended { shown(rows) } else { rows.filter(sessions::state.eq("active")) };
        // "active" sorts before "ended".
        let newest_first = (sessions::state.asc(), sessions::created_at.desc(), sessions::id.desc());
        let row = rows.order(newest_first).limit(1).select(SessionRow::as_select());
        self.database.read_one("session.find_in_project", row).await
    }

    async fn count_named(&self, project: ProjectId, name: &str) -> Result<u64, StoreError> {
        let rows = sessions::table.filter(sessions::project_id.eq(Column(project))).filter(sessions::name.eq(name));
        let counting = shown(rows.into_boxed()).count();
        let work = async |connection: &mut AsyncPgConnection| {
            let count: i64 = counting.get_result(connection).await?;
            Ok(count.unsigned_abs())
        };
        self.database.call("session.count_named", work).await
    }

    async fn note_ignored_fields(&self, id: SessionId, fields: &[String]) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = (session_ignored_fields::session_id.eq(Column(id)), session_ignored_fields::fields.eq(fields));
            let insert = diesel::insert_into(session_ignored_fields::table).values(row).on_conflict_do_nothing();
            insert.execute(connection).await?;
            Ok(())
        };
        self.database.call("session.note_ignored_fields", work).await
    }

    async fn ignored_fields(&self, id: SessionId) -> Result<Vec<String>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = session_ignored_fields::table.find(Column(id)).select(session_ignored_fields::fields);
            Ok(row.get_result(connection).await.optional()?.unwrap_or_default())
        };
        self.database.fetch("session.ignored_fields", work).await
    }

    async fn of_browser(&self, browser: BrowserId) -> Result<Option<Session>, StoreError> {
        let row = sessions::table.filter(sessions::browser_id.eq(Column(browser)));
        let row = row.filter(not(sessions::state.eq("ended"))).select(SessionRow::as_select());
        self.database.find("session.of_browser", row).await
    }

    async fn of_node(&self, node: NodeId) -> Result<Vec<Session>, StoreError> {
        let rows = sessions::table.filter(sessions::node_id.eq(Column(node)));
        let rows = rows.filter(not(sessions::state.eq("ended"))).order(sessions::id);
        self.database.all("session.of_node", rows.select(SessionRow::as_select())).await
    }

    async fn of_pool(&self, pool: PoolId) -> Result<Vec<Session>, StoreError> {
        let rows = sessions::table.filter(sessions::pool_id.eq(Column(pool)));
        let rows = rows.filter(sessions::state.eq("active")).order(sessions::id);
        self.database.all("session.of_pool", rows.select(SessionRow::as_select())).await
    }

    async fn of_deleted_pools(&self, node: NodeId) -> Result<Vec<Session>, StoreError> {
        let deleted = browser_pools::table.filter(browser_pools::deleted_at.is_not_null());
        let rows = sessions::table.filter(sessions::node_id.eq(Column(node)));
        let rows = rows.filter(sessions::state.eq("active")).order(sessions::id);
        let rows = rows.filter(sessions::pool_id.eq_any(deleted.select(browser_pools::id.nullable())));
        self.database.all("session.of_deleted_pools", rows.select(SessionRow::as_select())).await
    }

    async fn of_invocation(&self, invocation: InvocationId) -> Result<Vec<Session>, StoreError> {
        let rows = sessions::table.filter(sessions::invocation_id.eq(Column(invocation)));
        let rows = rows.filter(not(sessions::state.eq("ended"))).order((sessions::created_at, sessions::id));
        self.database.all("session.of_invocation", rows.select(SessionRow::as_select())).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &SessionFilter,
        page: Page,
    ) -> Result<Listed<Session>, StoreError> {
        let mut rows = shown(sessions::table.filter(sessions::project_id.eq(Column(project))).into_boxed());
        rows = match filter.status {
            StatusFilter::Active => rows.filter(sessions::state.eq("active")),
            StatusFilter::Deleted => rows.filter(sessions::state.eq("ended")),
            StatusFilter::All => rows,
        };
        if let Some(query) = &filter.query {
            let named = contains("sessions.name", query).or(contains("sessions.pool_name", query));
            let named = named.or(sessions::id.eq_any(query.parse::<SessionId>().ok().map(Column))).nullable();
            let named = named.or(sessions::proxy_id.eq_any(query.parse::<ProxyId>().ok().map(Column)));
            let named = named.or(sessions::profile_id.eq_any(query.parse::<ProfileId>().ok().map(Column)));
            rows = rows.filter(named.assume_not_null());
        }
        if !filter.tags.is_empty() {
            // No session has invalid tags.
            let Ok(wanted) = Tags::parse(filter.tags.clone()) else { return Ok(page.cut(Vec::new())) };
            rows = rows.filter(sessions::tags.contains(Column(wanted)));
        }
        let rows = rows.order((sessions::created_at.desc(), sessions::id.desc()));
        self.database.page("session.list", page, rows.select(SessionRow::as_select())).await
    }

    async fn change(&self, id: SessionId, changes: &SessionUpdate) -> Result<Option<Created>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let changed = SessionChange { name: Stored::of(&changes.name), tags: Stored::of(&changes.tags) };
            let row = active(id);
            let found = if changed.name.is_none() && changed.tags.is_none() {
                counted(connection, row.count()).await? == 1
            } else {
                diesel::update(row).set(changed).execute(connection).await? == 1
            };
            Ok(found.then_some(Created::Yes))
        };
        let name_taken = if_violated(&[NAME_KEY], Some(Created::NameTaken));
        self.database.transaction_or("session.change", work, name_taken).await
    }

    async fn set_viewport(&self, id: SessionId, viewport: Viewport) -> Result<(), StoreError> {
        let size = sessions::shape.eq(sessions::shape.concat(with_viewport(viewport)));
        self.database.change("session.set_viewport", diesel::update(active(id)).set(size)).await
    }

    async fn set_proxy(&self, id: SessionId, proxy: Option<ProxyId>) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let proxy = proxy.map(Column);
            let changed = diesel::update(active(id)).set(sessions::proxy_id.eq(proxy)).execute(connection).await?;
            let browser = browsers::table.filter(browsers::session_id.eq(Column(id)));
            diesel::update(browser).set(browsers::proxy_id.eq(proxy)).execute(connection).await?;
            Ok(changed == 1)
        };
        self.database.transaction("session.set_proxy", work).await
    }

    async fn set_location(&self, id: SessionId, location: Location) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let given = sessions::shape.eq(sessions::shape.concat(with_location(location)));
            let changed = diesel::update(active(id)).set(given).execute(connection).await?;
            let browser = browsers::table.filter(browsers::session_id.eq(Column(id)));
            let given = browsers::shape.eq(browsers::shape.concat(with_location(location)));
            diesel::update(browser).set(given).execute(connection).await?;
            Ok(changed == 1)
        };
        self.database.transaction("session.set_location", work).await
    }

    async fn change_allowlist(
        &self,
        id: SessionId,
        change: &AllowlistChange,
    ) -> Result<Option<Result<Network, AllowlistError>>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let stored = active(id).select(sessions::network).for_update();
            let stored: Option<Option<Column<Network>>> = stored.get_result(connection).await.optional()?;
            let Some(stored) = stored else { return Ok(None) };
            let changed = stored.map(|network| network.0).unwrap_or_default().changed(change);
            if let Ok(network) = &changed {
                let network = Some(Column(network.clone()));
                diesel::update(active(id)).set(sessions::network.eq(&network)).execute(connection).await?;
                let browser = browsers::table.filter(browsers::session_id.eq(Column(id)));
                diesel::update(browser).set(browsers::network.eq(&network)).execute(connection).await?;
            }
            Ok(Some(changed))
        };
        self.database.transaction("session.change_allowlist", work).await
    }

    async fn set_profile(&self, id: SessionId, profile: LoadedProfile) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let version = profile.version.map(Column);
            let row = active(id).filter(sessions::profile_id.is_null());
            let given = (
                sessions::profile_id.eq(Column(profile.id)),
                sessions::profile_version_id.eq(version),
                sessions::save_profile.eq(profile.save_changes),
            );
            if diesel::update(row).set(given).execute(connection).await? == 0 {
                return Ok(false);
            }
            let given = (
                browsers::profile_id.eq(Column(profile.id)),
                browsers::profile_version_id.eq(version),
                browsers::save_profile.eq(profile.save_changes),
            );
            let browser = browsers::table.filter(browsers::session_id.eq(Column(id)));
            diesel::update(browser).set(given).execute(connection).await?;
            Ok(true)
        };
        self.database.transaction("session.set_profile", work).await
    }

    async fn set_telemetry(&self, id: SessionId, telemetry: Option<Capture>) -> Result<bool, StoreError> {
        let exports =
            |capture: &Option<Capture>| capture.as_ref().is_some_and(|one| one.delivery().destination.is_some());
        let work = async |connection: &mut AsyncPgConnection| {
            let before = active(id).select(sessions::telemetry).for_no_key_update();
            let before: Option<Option<Vec<String>>> = before.get_result(connection).await.optional()?;
            let Some(before) = before else { return Ok(false) };
            let after: Option<Vec<String>> = Stored::of(&telemetry);
            diesel::update(active(id)).set(sessions::telemetry.eq(after)).execute(connection).await?;
            if exports(&telemetry) && !exports(&before.value()?) {
                export_from_now(connection, id).await?;
            }
            Ok(true)
        };
        self.database.transaction("session.set_telemetry", work).await
    }

    async fn note_activity(&self, changes: &[(SessionId, OffsetDateTime)]) -> Result<(), StoreError> {
        let (ids, times): (Vec<_>, Vec<_>) = changes.iter().map(|(id, at)| (Column(*id), *at)).unzip();
        let work = async |connection: &mut AsyncPgConnection| {
            // Locks the rows in the order of their ids, so that two of these never deadlock.
            let statement = diesel::sql_query(
                "WITH news AS (SELECT * FROM unnest($1, $2) AS news (id, at)), held AS (
                     SELECT s.id FROM sessions s JOIN news USING (id) WHERE s.state = 'active' ORDER BY s.id FOR UPDATE OF s)
                 UPDATE sessions SET last_active_at = greatest(last_active_at, news.at)
                 FROM news JOIN held USING (id) WHERE sessions.id = news.id",
            );
            let statement = statement.bind::<sql_types::Array<sql_types::Uuid>, _>(&ids);
            statement.bind::<sql_types::Array<sql_types::Timestamptz>, _>(&times).execute(connection).await?;
            Ok(())
        };
        self.database.call("session.note_activity", work).await
    }

    async fn forget(&self, before: OffsetDateTime, max: u32) -> Result<usize, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Replays and telemetry have retentions of their own, and are read by their session.
            let statement = diesel::sql_query(
                "DELETE FROM sessions WHERE id IN (
                     SELECT id FROM sessions s WHERE state = 'ended' AND ended_at < $1
                         AND NOT EXISTS (SELECT 1 FROM browsers WHERE session_id = s.id)
                         AND NOT EXISTS (SELECT 1 FROM replays WHERE session_id = s.id)
                         AND NOT EXISTS (SELECT 1 FROM telemetry_counts WHERE session_id = s.id)
                         AND NOT EXISTS (SELECT 1 FROM telemetry_exports WHERE session_id = s.id)
                     ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            );
            let statement = statement.bind::<sql_types::Timestamptz, _>(before);
            Ok(statement.bind::<sql_types::BigInt, _>(i64::from(max)).execute(connection).await?)
        };
        self.database.call("session.forget", work).await
    }
}

type Rows<'a> = sessions::BoxedQuery<'a, diesel::pg::Pg>;

/// The sessions that a caller has received.
fn shown(rows: Rows<'_>) -> Rows<'_> {
    let had = sessions::end_reason.is_null().or(sessions::end_reason.ne_all(NEVER_HAD).assume_not_null());
    rows.filter(sessions::state.ne("starting")).filter(had)
}

/// The session, while it is active.
fn active(id: SessionId) -> Filter<Find<sessions::table, Column<SessionId>>, Eq<sessions::state, &'static str>> {
    sessions::table.find(Column(id)).filter(sessions::state.eq("active"))
}

#[derive(AsChangeset)]
#[diesel(table_name = sessions)]
struct SessionChange {
    name: Option<Option<Column<LabelName>>>,
    tags: Option<Column<Tags>>,
}
