//! Statements of which a repository has many: in a call of their own as methods of [`Database`], in a larger one as functions.
//!
//! They say that their futures can be sent; the compiler does not find it out where a statement borrows.

#![expect(clippy::manual_async_fn, reason = "an async fn does not say that its future can be sent")]

use casement_domain::StoreError;
use casement_domain::page::{Listed, Page};
use diesel::dsl::{AsExprOf, sql};
use diesel::expression::{SqlLiteral, UncheckedBind};
use diesel::prelude::*;
use diesel::query_dsl::methods::{LimitDsl, OffsetDsl};
use diesel::sql_types::{Bool, Text};
use diesel_async::methods::{ExecuteDsl, LoadQuery};
use diesel_async::{AsyncConnectionCore, AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use crate::column::{Column, ColumnValue, Stored};
use crate::database::Database;
use crate::error::CallError;

type Connection = AsyncPgConnection;

/// The value of the one row that `query` reads.
pub(crate) fn find<'q, C: AsyncConnectionCore + Send, R: Stored<V> + Send, V: Send>(
    connection: &mut C,
    query: impl LoadQuery<'q, C, R> + Send + 'q,
) -> impl Future<Output = Result<Option<V>, CallError>> + Send {
    async move { Ok(query.get_result(connection).await.optional()?.map(R::value).transpose()?) }
}

/// The values of the rows that `query` reads.
pub(crate) fn all<'q, C: AsyncConnectionCore + Send, R: Stored<V> + Send, V: Send>(
    connection: &mut C,
    query: impl LoadQuery<'q, C, R> + Send + 'q,
) -> impl Future<Output = Result<Vec<V>, CallError>> + Send {
    async move { Ok(query.load(connection).await?.value()?) }
}

/// Whether `query`, which selects an identifier, finds a row; with a lock, whether the row is there and held.
pub(crate) fn is_there<'q>(
    connection: &mut Connection,
    query: impl LoadQuery<'q, Connection, Uuid> + Send + 'q,
) -> impl Future<Output = Result<bool, CallError>> + Send {
    async move { Ok(query.get_result(connection).await.optional()?.is_some()) }
}

/// How many rows `query`, a `count()`, finds.
pub(crate) fn counted<'q>(
    connection: &mut Connection,
    query: impl LoadQuery<'q, Connection, i64> + Send + 'q,
) -> impl Future<Output = Result<u32, CallError>> + Send {
    async move { Ok(count(query.get_result(connection).await?)) }
}

impl Database {
    /// The value of the one row that `query` reads.
    pub(crate) fn find<'q, R: Stored<V> + Send, V: Send>(
        &self,
        operation: &'static str,
        query: impl LoadQuery<'q, Connection, R> + Send + 'q,
    ) -> impl Future<Output = Result<Option<V>, StoreError>> + Send {
        self.fetch(operation, async move |connection: &mut Connection| find(connection, query).await)
    }

    /// The same for a query that is short whatever is asked, see [`Database::read`].
    pub(crate) fn read_one<'q, R: Stored<V> + Send, V: Send>(
        &self,
        operation: &'static str,
        query: impl for<'c> LoadQuery<'q, &'c Connection, R> + Send + 'q,
    ) -> impl Future<Output = Result<Option<V>, StoreError>> + Send {
        self.read(operation, async move |mut connection: &Connection| find(&mut connection, query).await)
    }

    /// The values of the rows that `query` reads.
    pub(crate) fn all<'q, R: Stored<V> + Send, V: Send>(
        &self,
        operation: &'static str,
        query: impl LoadQuery<'q, Connection, R> + Send + 'q,
    ) -> impl Future<Output = Result<Vec<V>, StoreError>> + Send {
        self.fetch(operation, async move |connection: &mut Connection| all(connection, query).await)
    }

    /// A page of the values of the rows that `query` reads.
    pub(crate) fn page<'q, R: Stored<V> + Send, V: Send>(
        &self,
        operation: &'static str,
        page: Page,
        query: impl LimitDsl<Output: OffsetDsl<Output: LoadQuery<'q, Connection, R> + Send + 'q>>,
    ) -> impl Future<Output = Result<Listed<V>, StoreError>> + Send {
        let (limit, offset) = window(page);
        let found = self.all(operation, query.limit(limit).offset(offset));
        async move { Ok(page.cut(found.await?)) }
    }

    /// Runs a statement that changes something.
    pub(crate) fn change(
        &self,
        operation: &'static str,
        statement: impl ExecuteDsl<Connection> + Send,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move { self.changed(operation, statement).await.map(drop) }
    }

    /// Whether there was something that `statement` changed.
    pub(crate) fn changed(
        &self,
        operation: &'static str,
        statement: impl ExecuteDsl<Connection> + Send,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let work = async move |connection: &mut Connection| Ok(ExecuteDsl::execute(statement, connection).await? > 0);
        self.call(operation, work)
    }

    /// The identifiers that `query` reads.
    pub(crate) fn ids<'q, T: ColumnValue + Clone + Send>(
        &self,
        operation: &'static str,
        query: impl LoadQuery<'q, Connection, Column<T>> + Send + 'q,
    ) -> impl Future<Output = Result<Vec<T>, StoreError>> + Send {
        self.all(operation, query)
    }
}

/// The rows of a page and one more, which tells whether there is another page.
pub(crate) fn window(page: Page) -> (i64, i64) {
    (i64::from(page.limit) + 1, i64::try_from(page.offset).unwrap_or(i64::MAX))
}

/// A count of the database.
pub(crate) fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// Whether the column of text holds `query`, whatever the case; where there is no text, nothing is held. The columns'
/// own collation knows no substrings, so the expression names another one.
pub(crate) fn contains(column: &'static str, query: &str) -> Contains {
    let text = format!("strpos(lower(coalesce({column}, '') COLLATE \"und-x-icu\"), lower(");
    let requested = sql::<Bool>(&text).bind::<Text, _>(query.to_owned());
    requested.sql(" COLLATE \"und-x-icu\")) > 0")
}

/// See [`contains`].
pub(crate) type Contains = SqlLiteral<Bool, UncheckedBind<SqlLiteral<Bool>, AsExprOf<String, Text>>>;
