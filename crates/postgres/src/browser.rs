//! Running browsers of pools and sessions.

use async_trait::async_trait;
use casement_domain::browser::{Browser, BrowserRepository, BrowserState};
use casement_domain::{BrowserId, NodeId, PoolId, SessionId, StoreError};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{by_text, shape_columns, ulid, uuid};
use crate::database::Database;
use crate::error::BadRow;
use crate::schema::browsers;

shape_columns!(BrowserShape, browsers);

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = browsers, check_for_backend(diesel::pg::Pg))]
pub(crate) struct BrowserRow {
    id: Uuid,
    node_id: Uuid,
    pool_id: Option<Uuid>,
    #[diesel(embed)]
    shape: BrowserShape,
    state: String,
    session_id: Option<Uuid>,
    created_at: OffsetDateTime,
}

impl From<&Browser> for BrowserRow {
    fn from(browser: &Browser) -> Self {
        Self {
            id: uuid(browser.id.ulid()),
            node_id: uuid(browser.node.ulid()),
            pool_id: browser.pool.map(|id| uuid(id.ulid())),
            shape: (&browser.shape).into(),
            state: browser.state.as_str().to_owned(),
            session_id: browser.session.map(|id| uuid(id.ulid())),
            created_at: browser.created_at,
        }
    }
}

impl TryFrom<BrowserRow> for Browser {
    type Error = BadRow;

    fn try_from(row: BrowserRow) -> Result<Self, BadRow> {
        Ok(Self {
            id: BrowserId::from_ulid(ulid(row.id)),
            node: NodeId::from_ulid(ulid(row.node_id)),
            pool: row.pool_id.map(|id| PoolId::from_ulid(ulid(id))),
            shape: row.shape.try_into()?,
            state: by_text("browsers.state", &BrowserState::ALL, BrowserState::as_str, row.state)?,
            session: row.session_id.map(|id| SessionId::from_ulid(ulid(id))),
            created_at: row.created_at,
        })
    }
}

/// Browsers in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgBrowsers {
    database: Database,
}

impl PgBrowsers {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl BrowserRepository for PgBrowsers {
    async fn find(&self, id: BrowserId) -> Result<Option<Browser>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = browsers::table.find(uuid(id.ulid())).select(BrowserRow::as_select());
            let row = row.get_result(connection).await.optional()?;
            Ok(row.map(Browser::try_from).transpose()?)
        };
        self.database.fetch("browser.find", work).await
    }

    async fn of_node(&self, node: NodeId) -> Result<Vec<Browser>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = browsers::table.filter(browsers::node_id.eq(uuid(node.ulid()))).order(browsers::id);
            let rows = rows.select(BrowserRow::as_select()).load(connection).await?;
            Ok(rows.into_iter().map(Browser::try_from).collect::<Result<Vec<_>, _>>()?)
        };
        self.database.fetch("browser.of_node", work).await
    }

    async fn discard(&self, id: BrowserId) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = browsers::table.find(uuid(id.ulid())).filter(browsers::state.eq_any(["warming", "idle"]));
            Ok(diesel::update(row).set(browsers::state.eq("ending")).execute(connection).await? == 1)
        };
        self.database.call("browser.discard", work).await
    }

    async fn forget(&self, id: BrowserId) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            diesel::delete(browsers::table.find(uuid(id.ulid()))).execute(connection).await?;
            Ok(())
        };
        self.database.call("browser.forget", work).await
    }
}
