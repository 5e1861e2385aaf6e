//! Sealed columns, which are resealed when the master key is rotated. See [`KeyId::of`].

use casement_domain::StoreError;
use casement_domain::sealing::KeyId;
use diesel::dsl::{AsExprOf, sql};
use diesel::expression::{SqlLiteral, UncheckedBind};
use diesel::sql_types::{Binary, Bool};
use diesel_async::methods::LoadQuery;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::database::Database;

/// Whether the column is sealed under another key than this one.
pub(crate) fn under_other_key(column: &'static str, key: KeyId) -> UnderOtherKey {
    sql::<Bool>(&format!("substring({column} FROM 2 FOR 8) <> ")).bind::<Binary, _>(key.0.to_vec())
}

/// See [`under_other_key`].
pub(crate) type UnderOtherKey = UncheckedBind<SqlLiteral<Bool>, AsExprOf<Vec<u8>, Binary>>;

/// The first bytes of a sealed column, which identify the key.
pub(crate) fn head(column: &'static str) -> SqlLiteral<Binary> {
    sql(&format!("substring({column} FROM 1 FOR 9)"))
}

impl Database {
    /// The keys that seal stored values, from a statement that reads the distinct [`head`]s.
    pub(crate) async fn keys<'q>(
        &self,
        operation: &'static str,
        heads: impl LoadQuery<'q, AsyncPgConnection, Vec<u8>> + 'q,
    ) -> Result<Vec<KeyId>, StoreError> {
        let work = async move |connection: &mut AsyncPgConnection| {
            let found: Vec<Vec<u8>> = heads.load(connection).await?;
            Ok(found.iter().filter_map(|head| KeyId::of(head)).collect())
        };
        self.fetch(operation, work).await
    }
}
