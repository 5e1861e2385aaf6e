//! Browser sessions: reserved under the limits, stored by compare-and-set.

use async_trait::async_trait;
use casement_domain::browser::{Browser, Viewport};
use casement_domain::organization::{CapacityRequest, admit};
use casement_domain::page::{Listed, Page};
use casement_domain::profile::LoadedProfile;
use casement_domain::session::{
    Created, EndReason, IdOrName, PoolRef, Session, SessionFilter, SessionRepository, SessionState, SessionUpdate,
    StatusFilter, Tags,
};
use casement_domain::telemetry::Capture;
use casement_domain::{
    BrowserId, InvocationId, NodeId, OrganizationId, PoolId, ProfileId, ProjectId, ProxyId, Replaced, SessionId,
    StoreError,
};
use diesel::dsl::not;
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::browser::BrowserRow;
use crate::convert::{
    by_text, contains, int, label, number, shape_columns, slug, start_url, tags, tags_value, telemetry,
    telemetry_value, ulid, uuid,
};
use crate::database::{Database, window};
use crate::error::{BadRow, CallError};
use crate::schema::{browser_pools, browsers, sessions};
use crate::{invocation, organization, project, usage, wait_queue};

shape_columns!(SessionShape, sessions);

/// Sessions that no caller ever had are shown to none.
const NEVER_HAD: [&str; 2] = [EndReason::StartFailed.as_str(), EndReason::Undelivered.as_str()];

#[derive(Debug, Queryable, QueryableByName, Selectable, Insertable)]
#[diesel(table_name = sessions, check_for_backend(diesel::pg::Pg))]
pub(crate) struct SessionRow {
    id: Uuid,
    project_id: Uuid,
    node_id: Uuid,
    browser_id: Option<Uuid>,
    pool_id: Option<Uuid>,
    pool_name: Option<String>,
    #[diesel(embed)]
    shape: SessionShape,
    name: Option<String>,
    timeout_seconds: i32,
    start_url: Option<String>,
    tags: serde_json::Value,
    telemetry: Option<Vec<String>>,
    state: String,
    end_reason: Option<String>,
    created_at: OffsetDateTime,
    last_active_at: OffsetDateTime,
    ended_at: Option<OffsetDateTime>,
    invocation_id: Option<Uuid>,
    for_login: bool,
}

fn reason_text(state: SessionState) -> Option<&'static str> {
    match state {
        SessionState::Starting | SessionState::Active => None,
        SessionState::Ended(reason) => Some(reason.as_str()),
    }
}

impl From<&Session> for SessionRow {
    fn from(session: &Session) -> Self {
        let pool = session.pool.as_ref();
        Self {
            id: uuid(session.id.ulid()),
            project_id: uuid(session.project.ulid()),
            node_id: uuid(session.node.ulid()),
            browser_id: session.browser.map(|id| uuid(id.ulid())),
            pool_id: pool.map(|pool| uuid(pool.id.ulid())),
            pool_name: pool.and_then(|pool| pool.name.as_ref()).map(|name| name.as_str().to_owned()),
            shape: (&session.shape).into(),
            name: session.name.as_ref().map(|name| name.as_str().to_owned()),
            timeout_seconds: int(session.timeout_seconds),
            start_url: session.start_url.as_ref().map(|url| url.as_str().to_owned()),
            tags: tags_value(&session.tags),
            telemetry: telemetry_value(session.telemetry.as_ref()),
            state: session.state.as_str().to_owned(),
            end_reason: reason_text(session.state).map(str::to_owned),
            created_at: session.created_at,
            last_active_at: session.last_active_at,
            ended_at: session.ended_at,
            invocation_id: session.invocation.map(|id| uuid(id.ulid())),
            for_login: session.for_login,
        }
    }
}

impl TryFrom<SessionRow> for Session {
    type Error = BadRow;

    fn try_from(row: SessionRow) -> Result<Self, BadRow> {
        let state = match (row.state.as_str(), row.end_reason) {
            ("starting", None) => SessionState::Starting,
            ("active", None) => SessionState::Active,
            ("ended", Some(reason)) => {
                SessionState::Ended(by_text("sessions.end_reason", &EndReason::ALL, EndReason::as_str, reason)?)
            }
            (other, _) => return Err(BadRow::new("sessions.state", other)),
        };
        let pool_name = row.pool_name.map(|name| slug("pool_name", &name)).transpose()?;
        Ok(Self {
            id: SessionId::from_ulid(ulid(row.id)),
            project: ProjectId::from_ulid(ulid(row.project_id)),
            node: NodeId::from_ulid(ulid(row.node_id)),
            browser: row.browser_id.map(|id| BrowserId::from_ulid(ulid(id))),
            pool: row.pool_id.map(|id| PoolRef { id: PoolId::from_ulid(ulid(id)), name: pool_name }),
            shape: row.shape.try_into()?,
            name: row.name.map(|name| label("sessions.name", &name)).transpose()?,
            timeout_seconds: number("timeout_seconds", row.timeout_seconds)?,
            start_url: start_url(row.start_url.as_deref())?,
            tags: tags(row.tags)?,
            telemetry: telemetry(row.telemetry),
            state,
            created_at: row.created_at,
            last_active_at: row.last_active_at,
            ended_at: row.ended_at,
            invocation: row.invocation_id.map(|id| InvocationId::from_ulid(ulid(id))),
            for_login: row.for_login,
        })
    }
}

/// Sessions in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgSessions {
    database: Database,
}

impl PgSessions {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

pub(crate) async fn find(mut connection: &AsyncPgConnection, id: Uuid) -> Result<Option<Session>, CallError> {
    let row = sessions::table.find(id).select(SessionRow::as_select()).get_result(&mut connection).await.optional()?;
    Ok(row.map(Session::try_from).transpose()?)
}

fn all(rows: Vec<SessionRow>) -> Result<Vec<Session>, CallError> {
    Ok(rows.into_iter().map(Session::try_from).collect::<Result<_, _>>()?)
}

/// Stores the end of a session and what follows for its browser; the transaction is the caller's.
pub(crate) async fn store_end(
    connection: &mut AsyncPgConnection,
    state_before: SessionState,
    next: &Session,
) -> Result<Replaced, CallError> {
    let at = next.ended_at.unwrap_or(next.last_active_at);
    let goes_back = next.pool.as_ref().filter(|_| next.leaves_its_browser_untouched()).map(|pool| pool.id);
    if let Some(pool) = goes_back {
        // Before any row is touched: whoever holds the line may wait for rows, and must not wait for ours.
        wait_queue::hold(connection, pool).await?;
    }
    let row = sessions::table.find(uuid(next.id.ulid())).filter(sessions::state.eq(state_before.as_str()));
    let ending = (
        sessions::state.eq(next.state.as_str()),
        sessions::end_reason.eq(reason_text(next.state)),
        sessions::ended_at.eq(next.ended_at),
    );
    if diesel::update(row).set(ending).execute(connection).await? == 0 {
        return Ok(Replaced::LostRace);
    }
    let browser = browsers::table.filter(browsers::session_id.eq(uuid(next.id.ulid())));
    let browser = browser.filter(browsers::state.eq("leased"));
    match goes_back {
        Some(pool) if wait_queue::pool_lives(connection, pool).await? => {
            let current = browser_pools::table.find(uuid(pool.ulid())).select(browser_pools::generation).single_value();
            let idle = (browsers::state.eq("idle"), browsers::session_id.eq(None::<Uuid>));
            let current = browser.filter(browsers::generation.nullable().eq(current));
            diesel::update(current).set(idle).execute(connection).await?;
            // What is left was discarded with all of its pool while it was leased.
            diesel::update(browser).set(browsers::state.eq("ending")).execute(connection).await?;
            wait_queue::hand_over(connection, pool, at).await?;
        }
        _ => {
            diesel::update(browser).set(browsers::state.eq("ending")).execute(connection).await?;
        }
    }
    Ok(Replaced::Yes)
}

/// What a unique violation means, if it is about a name.
fn name_taken(error: CallError) -> Result<Created, CallError> {
    if error.violated() == Some("sessions_name_key") { Ok(Created::NameTaken) } else { Err(error) }
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
            let Some(held) = organization::hold(connection, organization).await? else {
                return Ok(Created::ProjectGone);
            };
            let Some(owner) = project::living(connection, organization, session.project).await? else {
                return Ok(Created::ProjectGone);
            };
            if let Some(invocation) = session.invocation
                && !invocation::is_unfinished(connection, session.project, invocation).await?
            {
                return Ok(Created::NoInvocation);
            }
            let used = usage::of(connection, owner.id, organization, None).await?;
            let caps = owner.caps_in_force(&held);
            if let Err(refused) =
                admit((&caps, used.project), (&held.caps, used.organization), CapacityRequest::Session)
            {
                return Ok(Created::LimitExceeded(refused));
            }
            diesel::insert_into(sessions::table).values(SessionRow::from(session)).execute(connection).await?;
            if let Some(browser) = &browser {
                diesel::insert_into(browsers::table).values(BrowserRow::from(browser)).execute(connection).await?;
            }
            Ok(Created::Yes)
        };
        self.database.transaction_or("session.create", work, name_taken).await
    }

    async fn activate(&self, current: &Session, next: &Session, browser: &Browser) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = sessions::table.find(uuid(current.id.ulid()));
            let row = row.filter(sessions::state.eq(current.state.as_str()));
            let active = (
                sessions::state.eq(next.state.as_str()),
                sessions::browser_id.eq(next.browser.map(|id| uuid(id.ulid()))),
                sessions::last_active_at.eq(next.last_active_at),
            );
            if diesel::update(row).set(active).execute(connection).await? == 0 {
                return Ok(Replaced::LostRace);
            }
            diesel::insert_into(browsers::table).values(BrowserRow::from(browser)).execute(connection).await?;
            Ok(Replaced::Yes)
        };
        self.database.transaction("session.activate", work).await
    }

    async fn end(&self, current: &Session, next: &Session) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| store_end(connection, current.state, next).await;
        self.database.transaction("session.end", work).await
    }

    async fn find(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        self.database.read("session.find", async |connection| find(connection, uuid(id.ulid())).await).await
    }

    async fn find_in_project(
        &self,
        project: ProjectId,
        which: &IdOrName<SessionId>,
        include_ended: bool,
    ) -> Result<Option<Session>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let mut rows = sessions::table.filter(sessions::project_id.eq(uuid(project.ulid()))).into_boxed();
            rows = match which {
                IdOrName::Id(id) => rows.filter(sessions::id.eq(uuid(id.ulid()))),
                IdOrName::Name(name) => rows.filter(sessions::name.eq(name)),
            };
            rows = if include_ended { shown(rows) } else { rows.filter(sessions::state.eq("active")) };
            let newest_first = (sessions::state.asc(), sessions::created_at.desc(), sessions::id.desc());
            // "active" sorts before "ended".
            let row =
                rows.order(newest_first).select(SessionRow::as_select()).first(&mut connection).await.optional()?;
            Ok(row.map(Session::try_from).transpose()?)
        };
        self.database.read("session.find_in_project", work).await
    }

    async fn of_browser(&self, browser: BrowserId) -> Result<Option<Session>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = sessions::table.filter(sessions::browser_id.eq(uuid(browser.ulid())));
            let row = row.filter(not(sessions::state.eq("ended"))).select(SessionRow::as_select());
            let row = row.get_result(connection).await.optional()?;
            Ok(row.map(Session::try_from).transpose()?)
        };
        self.database.fetch("session.of_browser", work).await
    }

    async fn of_node(&self, node: NodeId) -> Result<Vec<Session>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = sessions::table.filter(sessions::node_id.eq(uuid(node.ulid())));
            let rows = rows.filter(not(sessions::state.eq("ended"))).order(sessions::id);
            all(rows.select(SessionRow::as_select()).load(connection).await?)
        };
        self.database.fetch("session.of_node", work).await
    }

    async fn of_pool(&self, pool: PoolId) -> Result<Vec<Session>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = sessions::table.filter(sessions::pool_id.eq(uuid(pool.ulid())));
            let rows = rows.filter(sessions::state.eq("active")).order(sessions::id);
            all(rows.select(SessionRow::as_select()).load(connection).await?)
        };
        self.database.fetch("session.of_pool", work).await
    }

    async fn of_deleted_pools(&self, node: NodeId) -> Result<Vec<Session>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let deleted = browser_pools::table.filter(browser_pools::deleted_at.is_not_null());
            let rows = sessions::table.filter(sessions::node_id.eq(uuid(node.ulid())));
            let rows = rows.filter(sessions::state.eq("active")).order(sessions::id);
            let rows = rows.filter(sessions::pool_id.eq_any(deleted.select(browser_pools::id.nullable())));
            all(rows.select(SessionRow::as_select()).load(connection).await?)
        };
        self.database.fetch("session.of_deleted_pools", work).await
    }

    async fn of_invocation(&self, invocation: InvocationId) -> Result<Vec<Session>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = sessions::table.filter(sessions::invocation_id.eq(uuid(invocation.ulid())));
            let rows = rows.filter(not(sessions::state.eq("ended"))).order((sessions::created_at, sessions::id));
            all(rows.select(SessionRow::as_select()).load(connection).await?)
        };
        self.database.fetch("session.of_invocation", work).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &SessionFilter,
        page: Page,
    ) -> Result<Listed<Session>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let mut rows = sessions::table.filter(sessions::project_id.eq(uuid(project.ulid()))).into_boxed();
            rows = shown(rows);
            rows = match filter.status {
                StatusFilter::Active => rows.filter(sessions::state.eq("active")),
                StatusFilter::Deleted => rows.filter(sessions::state.eq("ended")),
                StatusFilter::All => rows,
            };
            if let Some(query) = &filter.query {
                let by_id = query.parse::<SessionId>().ok().map(|id| uuid(id.ulid()));
                let matches = contains("sessions.name", query).or(contains("sessions.pool_name", query));
                let by_proxy = query.parse::<ProxyId>().ok().map(|id| uuid(id.ulid()));
                let by_profile = query.parse::<ProfileId>().ok().map(|id| uuid(id.ulid()));
                let by_id = sessions::id.nullable().eq(by_id).or(sessions::proxy_id.eq(by_proxy));
                let by_id = by_id.or(sessions::profile_id.eq(by_profile));
                rows = rows.filter(matches.nullable().or(by_id).assume_not_null());
            }
            if !filter.tags.is_empty() {
                let wanted = Tags::parse(filter.tags.clone()).map(|wanted| tags_value(&wanted));
                // What no session can bear, none bears.
                let Ok(wanted) = wanted else { return Ok(page.cut(Vec::new())) };
                rows = rows.filter(sessions::tags.contains(wanted));
            }
            let (limit, offset) = window(page);
            let rows = rows.order((sessions::created_at.desc(), sessions::id.desc())).limit(limit).offset(offset);
            Ok(page.cut(all(rows.select(SessionRow::as_select()).load(connection).await?)?))
        };
        self.database.fetch("session.list", work).await
    }

    async fn change(&self, id: SessionId, changes: &SessionUpdate) -> Result<Option<Created>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let name = changes.name.as_ref().map(|name| name.as_ref().map(|name| name.as_str().to_owned()));
            let changed = SessionChange { name, tags: changes.tags.as_ref().map(tags_value) };
            let row = sessions::table.find(uuid(id.ulid())).filter(sessions::state.eq("active"));
            let found = if changed.name.is_none() && changed.tags.is_none() {
                row.count().get_result::<i64>(connection).await? == 1
            } else {
                diesel::update(row).set(changed).execute(connection).await? == 1
            };
            Ok(found.then_some(Created::Yes))
        };
        self.database.transaction_or("session.change", work, |error| name_taken(error).map(Some)).await
    }

    async fn set_viewport(&self, id: SessionId, viewport: Viewport) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = sessions::table.find(uuid(id.ulid())).filter(sessions::state.eq("active"));
            let size = (
                sessions::viewport_width.eq(int(viewport.width)),
                sessions::viewport_height.eq(int(viewport.height)),
                sessions::viewport_refresh_rate.eq(int(viewport.refresh_rate)),
            );
            diesel::update(row).set(size).execute(connection).await?;
            Ok(())
        };
        self.database.call("session.set_viewport", work).await
    }

    async fn set_proxy(&self, id: SessionId, proxy: Option<ProxyId>) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let proxy = proxy.map(|id| uuid(id.ulid()));
            let row = sessions::table.find(uuid(id.ulid())).filter(sessions::state.eq("active"));
            let changed = diesel::update(row).set(sessions::proxy_id.eq(proxy)).execute(connection).await?;
            let browser = browsers::table.filter(browsers::session_id.eq(uuid(id.ulid())));
            diesel::update(browser).set(browsers::proxy_id.eq(proxy)).execute(connection).await?;
            Ok(changed == 1)
        };
        self.database.transaction("session.set_proxy", work).await
    }

    async fn set_profile(&self, id: SessionId, profile: LoadedProfile) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (id, version) = (uuid(id.ulid()), profile.version.map(|id| uuid(id.ulid())));
            let row =
                sessions::table.find(id).filter(sessions::state.eq("active")).filter(sessions::profile_id.is_null());
            let given = (
                sessions::profile_id.eq(uuid(profile.id.ulid())),
                sessions::profile_version_id.eq(version),
                sessions::save_profile.eq(profile.save_changes),
            );
            if diesel::update(row).set(given).execute(connection).await? == 0 {
                return Ok(false);
            }
            let given = (
                browsers::profile_id.eq(uuid(profile.id.ulid())),
                browsers::profile_version_id.eq(version),
                browsers::save_profile.eq(profile.save_changes),
            );
            let browser = browsers::table.filter(browsers::session_id.eq(id));
            diesel::update(browser).set(given).execute(connection).await?;
            Ok(true)
        };
        self.database.transaction("session.set_profile", work).await
    }

    async fn set_telemetry(&self, id: SessionId, telemetry: Option<Capture>) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = sessions::table.find(uuid(id.ulid())).filter(sessions::state.eq("active"));
            let telemetry = telemetry_value(telemetry.as_ref());
            let changed = diesel::update(row).set(sessions::telemetry.eq(telemetry)).execute(connection).await?;
            Ok(changed == 1)
        };
        self.database.call("session.set_telemetry", work).await
    }

    async fn note_activity(&self, news: &[(SessionId, OffsetDateTime)]) -> Result<(), StoreError> {
        let (ids, times): (Vec<_>, Vec<_>) = news.iter().map(|(id, at)| (uuid(id.ulid()), *at)).unzip();
        let work = async |connection: &mut AsyncPgConnection| {
            // Sorted, so that two of these never wait for one another's rows crosswise.
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
}

type Rows<'a> = sessions::BoxedQuery<'a, diesel::pg::Pg>;

/// Those that a caller has or had.
fn shown(rows: Rows<'_>) -> Rows<'_> {
    let had = sessions::end_reason.is_null().or(sessions::end_reason.ne_all(NEVER_HAD).assume_not_null());
    rows.filter(sessions::state.ne("starting")).filter(had)
}

#[derive(AsChangeset)]
#[diesel(table_name = sessions)]
struct SessionChange {
    name: Option<Option<String>>,
    tags: Option<serde_json::Value>,
}
