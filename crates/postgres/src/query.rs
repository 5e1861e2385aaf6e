//! Helpers of all repositories: methods of [`Database`] for calls of one statement, and functions for calls of several.

#![expect(
    clippy::manual_async_fn,
    reason = "the signatures promise `Send`, which the compiler does not infer where a statement borrows"
)]

use casement_domain::StoreError;
use casement_domain::page::{Listed, Page};
use diesel::dsl::{AsExprOf, sql};
use diesel::expression::{SqlLiteral, UncheckedBind};
use diesel::prelude::*;
use diesel::query_dsl::methods::{LimitDsl, OffsetDsl};
use diesel::sql_types::{Bool, Text};
use diesel_async::methods::{ExecuteDsl, LoadQuery};
use diesel_async::{AsyncConnectionCore, AsyncPgConnection, RunQueryDsl};
use futures_util::future::BoxFuture;
use uuid::Uuid;

use crate::column::{Column, ColumnValue, Stored};
use crate::database::Database;
use crate::error::CallError;

type Connection = AsyncPgConnection;

/// A query without its type, so that what runs it is compiled once for each type of row.
trait Load<'q, C, R>: Send {
    fn load<'c>(self: Box<Self>, connection: &'c mut C) -> BoxFuture<'c, QueryResult<Vec<R>>>
    where
        'q: 'c;
}

type AnyQuery<'q, C, R> = Box<dyn Load<'q, C, R> + 'q>;

impl<'q, C: AsyncConnectionCore + Send, R: Send + 'static, Q: LoadQuery<'q, C, R> + Send + 'q> Load<'q, C, R> for Q {
    fn load<'c>(self: Box<Self>, connection: &'c mut C) -> BoxFuture<'c, QueryResult<Vec<R>>>
    where
        'q: 'c,
    {
        Box::pin(RunQueryDsl::load(*self, connection))
    }
}

/// A statement that changes something, without its type.
trait Execute<'q>: Send {
    fn execute<'c>(self: Box<Self>, connection: &'c mut Connection) -> BoxFuture<'c, QueryResult<usize>>
    where
        'q: 'c;
}

type AnyStatement<'q> = Box<dyn Execute<'q> + 'q>;

impl<'q, Q: ExecuteDsl<Connection> + Send + 'q> Execute<'q> for Q {
    fn execute<'c>(self: Box<Self>, connection: &'c mut Connection) -> BoxFuture<'c, QueryResult<usize>>
    where
        'q: 'c,
    {
        Box::pin(ExecuteDsl::execute(*self, connection))
    }
}

/// The value of the one row that `query` reads.
pub(crate) fn find<'q, C: AsyncConnectionCore + Send, R: Stored<V> + Send + 'static, V: Send>(
    connection: &mut C,
    query: impl LoadQuery<'q, C, R> + Send + 'q,
) -> impl Future<Output = Result<Option<V>, CallError>> + Send {
    first(connection, Box::new(query))
}

async fn first<C, R: Stored<V>, V>(connection: &mut C, query: AnyQuery<'_, C, R>) -> Result<Option<V>, CallError> {
    Ok(query.load(connection).await?.into_iter().next().map(R::value).transpose()?)
}

/// The values of the rows that `query` reads.
pub(crate) fn all<'q, C: AsyncConnectionCore + Send, R: Stored<V> + Send + 'static, V: Send>(
    connection: &mut C,
    query: impl LoadQuery<'q, C, R> + Send + 'q,
) -> impl Future<Output = Result<Vec<V>, CallError>> + Send {
    values(connection, Box::new(query))
}

async fn values<C, R: Stored<V>, V>(connection: &mut C, query: AnyQuery<'_, C, R>) -> Result<Vec<V>, CallError> {
    Ok(query.load(connection).await?.value()?)
}

/// Whether `query`, which selects an id, finds a row. A query with a lock clause also locks the row.
pub(crate) fn is_there<'q>(
    connection: &mut Connection,
    query: impl LoadQuery<'q, Connection, Uuid> + Send + 'q,
) -> impl Future<Output = Result<bool, CallError>> + Send {
    async move { Ok(query.get_result(connection).await.optional()?.is_some()) }
}

/// The result of `query`, a `count()`.
pub(crate) fn counted<'q>(
    connection: &mut Connection,
    query: impl LoadQuery<'q, Connection, i64> + Send + 'q,
) -> impl Future<Output = Result<u32, CallError>> + Send {
    async move { Ok(count(query.get_result(connection).await?)) }
}

impl Database {
    /// The value of the one row that `query` reads.
    pub(crate) fn find<'q, R: Stored<V> + Send + 'static, V: Send>(
        &self,
        operation: &'static str,
        query: impl LoadQuery<'q, Connection, R> + Send + 'q,
    ) -> impl Future<Output = Result<Option<V>, StoreError>> + Send {
        self.find_any(operation, Box::new(query))
    }

    fn find_any<R: Stored<V> + Send, V: Send>(
        &self,
        operation: &'static str,
        query: AnyQuery<'_, Connection, R>,
    ) -> impl Future<Output = Result<Option<V>, StoreError>> + Send {
        self.fetch(operation, async move |connection: &mut Connection| first(connection, query).await)
    }

    /// Like [`find`](Self::find), for a query that is always short. See [`Database::read`].
    pub(crate) fn read_one<'q, R: Stored<V> + Send + 'static, V: Send>(
        &self,
        operation: &'static str,
        query: impl for<'c> LoadQuery<'q, &'c Connection, R> + Send + 'q,
    ) -> impl Future<Output = Result<Option<V>, StoreError>> + Send {
        self.read(operation, async move |mut connection: &Connection| find(&mut connection, query).await)
    }

    /// The values of the rows that `query` reads.
    pub(crate) fn all<'q, R: Stored<V> + Send + 'static, V: Send>(
        &self,
        operation: &'static str,
        query: impl LoadQuery<'q, Connection, R> + Send + 'q,
    ) -> impl Future<Output = Result<Vec<V>, StoreError>> + Send {
        self.all_any(operation, Box::new(query))
    }

    fn all_any<R: Stored<V> + Send, V: Send>(
        &self,
        operation: &'static str,
        query: AnyQuery<'_, Connection, R>,
    ) -> impl Future<Output = Result<Vec<V>, StoreError>> + Send {
        self.fetch(operation, async move |connection: &mut Connection| values(connection, query).await)
    }

    /// Reads a page: the values of the rows of `query`, which is limited here.
    pub(crate) fn page<'q, R: Stored<V> + Send + 'static, V: Send>(
        &self,
        operation: &'static str,
        page: Page,
        query: impl LimitDsl<Output: OffsetDsl<Output: LoadQuery<'q, Connection, R> + Send + 'q>>,
    ) -> impl Future<Output = Result<Listed<V>, StoreError>> + Send {
        let (limit, offset) = window(page);
        self.page_any(operation, page, Box::new(query.limit(limit).offset(offset)))
    }

    async fn page_any<R: Stored<V> + Send, V: Send>(
        &self,
        operation: &'static str,
        page: Page,
        query: AnyQuery<'_, Connection, R>,
    ) -> Result<Listed<V>, StoreError> {
        Ok(page.cut(self.all_any(operation, query).await?))
    }

    /// Runs a statement that changes something.
    pub(crate) fn change<'q>(
        &self,
        operation: &'static str,
        statement: impl ExecuteDsl<Connection> + Send + 'q,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let statement: AnyStatement<'q> = Box::new(statement);
        self.change_any(operation, statement)
    }

    async fn change_any(&self, operation: &'static str, statement: AnyStatement<'_>) -> Result<(), StoreError> {
        self.changed_any(operation, statement).await.map(drop)
    }

    /// Runs a statement that changes something. Returns whether it changed any row.
    pub(crate) fn changed<'q>(
        &self,
        operation: &'static str,
        statement: impl ExecuteDsl<Connection> + Send + 'q,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let statement: AnyStatement<'q> = Box::new(statement);
        self.changed_any(operation, statement)
    }

    async fn changed_any(&self, operation: &'static str, statement: AnyStatement<'_>) -> Result<bool, StoreError> {
        let work = async move |connection: &mut Connection| Ok(statement.execute(connection).await? > 0);
        self.call(operation, work).await
    }

    /// The ids that `query` reads.
    pub(crate) fn ids<'q, T: ColumnValue + Clone + Send + 'static>(
        &self,
        operation: &'static str,
        query: impl LoadQuery<'q, Connection, Column<T>> + Send + 'q,
    ) -> impl Future<Output = Result<Vec<T>, StoreError>> + Send {
        self.all(operation, query)
    }
}

/// The limit and offset for a page and one more row, which shows whether there is another page.
pub(crate) fn window(page: Page) -> (i64, i64) {
    (i64::from(page.limit) + 1, i64::try_from(page.offset).unwrap_or(i64::MAX))
}

/// Converts a count of the database to `u32`, saturating.
pub(crate) fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// Whether the text column contains `query`, ignoring case. A null counts as empty. The collation of the columns does
/// not support substrings, so the expression names another one.
pub(crate) fn contains(column: &'static str, query: &str) -> Contains {
    let text = format!("strpos(lower(coalesce({column}, '') COLLATE \"und-x-icu\"), lower(");
    let requested = sql::<Bool>(&text).bind::<Text, _>(query.to_owned());
    requested.sql(" COLLATE \"und-x-icu\")) > 0")
}

/// See [`contains`].
pub(crate) type Contains = SqlLiteral<Bool, UncheckedBind<SqlLiteral<Bool>, AsExprOf<String, Text>>>;
