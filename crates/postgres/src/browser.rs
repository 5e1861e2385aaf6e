//! Running browsers of pools and sessions.

use async_trait::async_trait;
use casement_domain::browser::{Browser, BrowserRepository, BrowserState};
use casement_domain::{BrowserId, NodeId, PoolId, SessionId, StoreError};
use diesel::prelude::*;
use time::OffsetDateTime;

use crate::column::{Column, row};
use crate::database::repository;
use crate::schema::browsers;
use crate::shape::shape_columns;

shape_columns!(ShapeColumns, browsers);

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = browsers, check_for_backend(diesel::pg::Pg))]
    pub(crate) struct BrowserRow for Browser {
        id: Column<BrowserId>,
        node: Column<NodeId> as node_id,
        pool: Option<Column<PoolId>> as pool_id,
        #[diesel(embed)]
        shape: ShapeColumns,
        state: Column<BrowserState>,
        session: Option<Column<SessionId>> as session_id,
        created_at: OffsetDateTime,
    }
}

repository! {
    /// Browsers in PostgreSQL.
    PgBrowsers
}

#[async_trait]
impl BrowserRepository for PgBrowsers {
    async fn find(&self, id: BrowserId) -> Result<Option<Browser>, StoreError> {
        self.database.find("browser.find", browsers::table.find(Column(id)).select(BrowserRow::as_select())).await
    }

    async fn of_node(&self, node: NodeId) -> Result<Vec<Browser>, StoreError> {
        let rows = browsers::table.filter(browsers::node_id.eq(Column(node))).order(browsers::id);
        self.database.all("browser.of_node", rows.select(BrowserRow::as_select())).await
    }

    async fn discard(&self, id: BrowserId) -> Result<bool, StoreError> {
        let row = browsers::table.find(Column(id)).filter(browsers::state.eq_any(["warming", "idle"]));
        self.database.changed("browser.discard", diesel::update(row).set(browsers::state.eq("ending"))).await
    }

    async fn forget(&self, id: BrowserId) -> Result<(), StoreError> {
        self.database.change("browser.forget", diesel::delete(browsers::table.find(Column(id)))).await
    }
}
