//! Sign-ins to the web interface.

use async_trait::async_trait;
use casement_domain::sign_in::{CookieHash, SignIn, SignInBounds, SignInRepository};
use casement_domain::{ApiKeyId, StoreError};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::{Column, ColumnValue, Stored, row};
use crate::database::repository;
use crate::schema::sign_ins;

impl ColumnValue for CookieHash {
    type Raw = Vec<u8>;

    fn to_raw(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    fn from_raw(raw: Vec<u8>) -> Result<Self, String> {
        raw.try_into().map(Self).map_err(|_| "not 32 bytes".to_owned())
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = sign_ins, check_for_backend(diesel::pg::Pg))]
    struct SignInRow for SignIn {
        cookie: Column<CookieHash> as cookie_hash,
        key: Column<ApiKeyId> as api_key_id,
        token: String as csrf_token,
        started_at: OffsetDateTime,
        last_used_at: OffsetDateTime,
    }
}

repository! {
    /// Sign-ins in PostgreSQL.
    PgSignIns
}

#[async_trait]
impl SignInRepository for PgSignIns {
    async fn create(&self, sign_in: &SignIn, bounds: &SignInBounds) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            diesel::insert_into(sign_ins::table).values(SignInRow::of(sign_in)).execute(connection).await?;
            let is_over =
                sign_ins::started_at.le(bounds.started_after).or(sign_ins::last_used_at.le(bounds.used_after));
            diesel::delete(sign_ins::table.filter(is_over)).execute(connection).await?;
            let newest = sign_ins::table.order((sign_ins::last_used_at.desc(), sign_ins::started_at.desc()));
            let ids = newest.select(sign_ins::cookie_hash);
            let of_key = ids.filter(sign_ins::api_key_id.eq(Column(sign_in.key))).offset(bounds.max_per_key.into());
            let others: Vec<Vec<u8>> = of_key.load(connection).await?;
            diesel::delete(sign_ins::table.filter(sign_ins::cookie_hash.eq_any(others))).execute(connection).await?;
            let others: Vec<Vec<u8>> = ids.offset(bounds.max_total.into()).load(connection).await?;
            diesel::delete(sign_ins::table.filter(sign_ins::cookie_hash.eq_any(others))).execute(connection).await?;
            Ok(())
        };
        self.database.transaction("sign_in.create", work).await
    }

    async fn find(&self, cookie: CookieHash) -> Result<Option<SignIn>, StoreError> {
        let row = sign_ins::table.find(Column(cookie)).select(SignInRow::as_select());
        self.database.find("sign_in.find", row).await
    }

    async fn mark_used(&self, cookie: CookieHash, at: OffsetDateTime) -> Result<(), StoreError> {
        let row = diesel::update(sign_ins::table.find(Column(cookie)).filter(sign_ins::last_used_at.lt(at)));
        self.database.change("sign_in.mark_used", row.set(sign_ins::last_used_at.eq(at))).await
    }

    async fn delete(&self, cookie: CookieHash) -> Result<(), StoreError> {
        self.database.change("sign_in.delete", diesel::delete(sign_ins::table.find(Column(cookie)))).await
    }

    async fn delete_of_key(&self, key: ApiKeyId) -> Result<(), StoreError> {
        let rows = diesel::delete(sign_ins::table.filter(sign_ins::api_key_id.eq(Column(key))));
        self.database.change("sign_in.delete_of_key", rows).await
    }
}
