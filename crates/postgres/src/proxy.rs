//! Proxies, their passwords sealed.

use async_trait::async_trait;
use casement_domain::name::LabelName;
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::page::{Listed, Page};
use casement_domain::proxy::{
    BypassHost, Exit, ExitMember, OwnProxy, Proxy, ProxyChecked, ProxyConfig, ProxyDeleted, ProxyFailure, ProxyFilter,
    ProxyProtocol, ProxyRepository, ProxyStatus, ProxyStored, ProxyType,
};
use casement_domain::sealing::KeyId;
use casement_domain::{ProjectId, ProxyId, StoreError};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{by_text, contains, count, label, ulid, unreadable, uuid};
use crate::database::{Database, window};
use crate::error::{BadRow, CallError};
use crate::schema::{auth_connections, browser_pools, projects, proxies};

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = proxies, check_for_backend(diesel::pg::Pg))]
struct ProxyRow {
    id: Uuid,
    project_id: Uuid,
    name: Option<String>,
    #[diesel(column_name = type_)]
    kind: String,
    protocol: String,
    host: Option<String>,
    port: Option<i32>,
    username: Option<String>,
    sealed_password: Option<Vec<u8>>,
    exit: Option<Value>,
    bypass_hosts: Vec<String>,
    status: String,
    last_checked: Option<OffsetDateTime>,
    ip_address: Option<String>,
    created_at: OffsetDateTime,
    failure: Option<String>,
}

impl From<&Proxy> for ProxyRow {
    fn from(proxy: &Proxy) -> Self {
        let (own, exit) = match &proxy.config {
            ProxyConfig::Own(own) => (Some(own), None),
            ProxyConfig::Rented(exit) => (None, Some(json(exit))),
        };
        Self {
            id: uuid(proxy.id.ulid()),
            project_id: uuid(proxy.project.ulid()),
            name: proxy.name.as_ref().map(|name| name.as_str().to_owned()),
            kind: proxy.kind.as_str().to_owned(),
            protocol: proxy.protocol.as_str().to_owned(),
            host: own.map(|own| own.host.clone()),
            port: own.map(|own| i32::from(own.port)),
            username: own.and_then(|own| own.username.clone()),
            sealed_password: own.and_then(|own| own.password.clone()),
            exit,
            bypass_hosts: proxy.bypass.iter().map(ToString::to_string).collect(),
            status: proxy.status.as_str().to_owned(),
            last_checked: proxy.last_checked,
            ip_address: proxy.ip_address.clone(),
            created_at: proxy.created_at,
            failure: proxy.failure.map(|failure| failure.as_str().to_owned()),
        }
    }
}

impl TryFrom<ProxyRow> for Proxy {
    type Error = BadRow;

    fn try_from(row: ProxyRow) -> Result<Self, BadRow> {
        let bypass = BypassHost::parse_all(&row.bypass_hosts).map_err(|bad| unreadable("bypass_hosts", &bad))?;
        let config = match (row.exit, row.host, row.port) {
            (Some(exit), ..) => ProxyConfig::Rented(read_exit(&exit)),
            (None, Some(host), Some(port)) => {
                let port = u16::try_from(port).map_err(|_| BadRow::new("proxies.port", port))?;
                ProxyConfig::Own(OwnProxy { host, port, username: row.username, password: row.sealed_password })
            }
            (None, ..) => return Err(BadRow::new("proxies.host", "none")),
        };
        Ok(Self {
            id: ProxyId::from_ulid(ulid(row.id)),
            project: ProjectId::from_ulid(ulid(row.project_id)),
            name: row.name.map(|name| label("proxies.name", &name)).transpose()?,
            kind: by_text("proxies.type", &ProxyType::ALL, ProxyType::as_str, row.kind)?,
            protocol: by_text("proxies.protocol", &ProxyProtocol::ALL, ProxyProtocol::as_str, row.protocol)?,
            config,
            bypass,
            status: by_text("proxies.status", &ProxyStatus::ALL, ProxyStatus::as_str, row.status)?,
            last_checked: row.last_checked,
            ip_address: row.ip_address,
            created_at: row.created_at,
            failure: row
                .failure
                .map(|word| by_text("proxies.failure", &ProxyFailure::ALL, ProxyFailure::as_str, word))
                .transpose()?,
        })
    }
}

fn json(exit: &Exit) -> Value {
    let given =
        ExitMember::ALL.iter().filter_map(|member| Some((member.as_str().to_owned(), exit.get(*member)?.into())));
    Value::Object(given.collect())
}

fn read_exit(stored: &Value) -> Exit {
    let given = |member: ExitMember| stored[member.as_str()].as_str().map(str::to_owned);
    Exit {
        country: given(ExitMember::Country),
        state: given(ExitMember::State),
        city: given(ExitMember::City),
        zip: given(ExitMember::Zip),
        asn: given(ExitMember::Asn),
        os: given(ExitMember::Os),
    }
}

/// Holds the proxy until the transaction ends, so that it is not deleted meanwhile. `false` if it is not there.
pub(crate) async fn hold(connection: &mut AsyncPgConnection, id: Option<ProxyId>) -> Result<bool, CallError> {
    let Some(id) = id else { return Ok(true) };
    let row = proxies::table.find(uuid(id.ulid())).filter(proxies::deleted_at.is_null());
    let found: Option<Uuid> = row.select(proxies::id).for_share().get_result(connection).await.optional()?;
    Ok(found.is_some())
}

/// Proxies in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgProxies {
    database: Database,
}

impl PgProxies {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

fn read(row: Option<ProxyRow>) -> Result<Option<Proxy>, CallError> {
    Ok(row.map(Proxy::try_from).transpose()?)
}

fn all(rows: Vec<ProxyRow>) -> Result<Vec<Proxy>, CallError> {
    Ok(rows.into_iter().map(Proxy::try_from).collect::<Result<_, _>>()?)
}

#[async_trait]
impl ProxyRepository for PgProxies {
    async fn create(&self, proxy: &Proxy, most: u32) -> Result<ProxyStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let project = uuid(proxy.project.ulid());
            // Held, so that two do not both take the last place, and the project is not deleted meanwhile.
            let owner = projects::table.find(project).filter(projects::deleted_at.is_null());
            let owner: Option<Uuid> =
                owner.select(projects::id).for_no_key_update().get_result(connection).await.optional()?;
            if owner.is_none() {
                return Ok(ProxyStored::ProjectGone);
            }
            let used = proxies::table.filter(proxies::project_id.eq(project)).filter(proxies::deleted_at.is_null());
            let used = count(used.count().get_result(connection).await?);
            if used >= most {
                let limit = LimitExceeded { limit: Limit::ProjectProxies, value: most, used, requested: 1 };
                return Ok(ProxyStored::LimitExceeded(limit));
            }
            let taken_at = proxy.last_checked.unwrap_or(proxy.created_at);
            let row = (ProxyRow::from(proxy), proxies::check_taken_at.eq(taken_at));
            diesel::insert_into(proxies::table).values(row).execute(connection).await?;
            Ok(ProxyStored::Yes)
        };
        self.database.transaction_or("proxy.create", work, Err).await
    }

    async fn find(&self, project: ProjectId, id: ProxyId) -> Result<Option<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = proxies::table.find(uuid(id.ulid())).filter(proxies::project_id.eq(uuid(project.ulid())));
            let row = row.filter(proxies::deleted_at.is_null()).select(ProxyRow::as_select());
            read(row.get_result(connection).await.optional()?)
        };
        self.database.fetch("proxy.find", work).await
    }

    async fn named(&self, project: ProjectId, name: &str) -> Result<Vec<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = proxies::table.filter(proxies::project_id.eq(uuid(project.ulid())));
            let rows = rows.filter(proxies::deleted_at.is_null()).filter(proxies::name.eq(name)).limit(2);
            all(rows.select(ProxyRow::as_select()).load(connection).await?)
        };
        self.database.fetch("proxy.named", work).await
    }

    async fn find_any(&self, id: ProxyId) -> Result<Option<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = proxies::table.find(uuid(id.ulid())).select(ProxyRow::as_select());
            read(row.get_result(connection).await.optional()?)
        };
        self.database.fetch("proxy.find_any", work).await
    }

    async fn list(&self, project: ProjectId, filter: &ProxyFilter, page: Page) -> Result<Listed<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = proxies::table.filter(proxies::project_id.eq(uuid(project.ulid()))).into_boxed();
            rows = rows.filter(proxies::deleted_at.is_null());
            if let Some(name) = &filter.name {
                rows = rows.filter(proxies::name.eq(name));
            }
            if let Some(query) = &filter.query {
                let named = contains("proxies.name", query).or(contains("proxies.host", query));
                rows = rows.filter(named.or(contains("proxies.ip_address", query)));
            }
            let rows = rows.order((proxies::created_at.desc(), proxies::id.desc())).limit(limit).offset(offset);
            Ok(page.cut(all(rows.select(ProxyRow::as_select()).load(connection).await?)?))
        };
        self.database.fetch("proxy.list", work).await
    }

    async fn rename(&self, project: ProjectId, id: ProxyId, name: &LabelName) -> Result<Option<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = proxies::table.find(uuid(id.ulid())).filter(proxies::project_id.eq(uuid(project.ulid())));
            let row = row.filter(proxies::deleted_at.is_null());
            let renamed = diesel::update(row).set(proxies::name.eq(name.as_str())).returning(ProxyRow::as_select());
            read(renamed.get_result(connection).await.optional()?)
        };
        self.database.call("proxy.rename", work).await
    }

    async fn checked(&self, id: ProxyId, found: &ProxyChecked) -> Result<Option<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = proxies::table.find(uuid(id.ulid())).filter(proxies::deleted_at.is_null());
            let newer = row.filter(proxies::last_checked.is_null().or(proxies::last_checked.le(found.at)));
            let failure = found.failure.map(ProxyFailure::as_str);
            let status = (
                proxies::status.eq(found.status.as_str()),
                proxies::failure.eq(failure),
                proxies::last_checked.eq(found.at),
            );
            if let Some(address) = &found.ip_address {
                let known = (status, proxies::ip_address.eq(address));
                diesel::update(newer).set(known).execute(connection).await?;
            } else {
                diesel::update(newer).set(status).execute(connection).await?;
            }
            read(row.select(ProxyRow::as_select()).get_result(connection).await.optional()?)
        };
        self.database.call("proxy.checked", work).await
    }

    async fn delete(&self, project: ProjectId, id: ProxyId, at: OffsetDateTime) -> Result<ProxyDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = uuid(id.ulid());
            let row = proxies::table.find(id).filter(proxies::project_id.eq(uuid(project.ulid())));
            let row = row.filter(proxies::deleted_at.is_null());
            // First the row, then the pools: one that is being stored with it has the row, and is seen afterwards.
            let held: Option<Uuid> = row.select(proxies::id).for_update().get_result(connection).await.optional()?;
            if held.is_none() {
                return Ok(ProxyDeleted::NotFound);
            }
            let naming = browser_pools::table.filter(browser_pools::proxy_id.eq(id));
            let naming = naming.filter(browser_pools::deleted_at.is_null());
            if diesel::select(diesel::dsl::exists(naming)).get_result(connection).await? {
                return Ok(ProxyDeleted::InUse);
            }
            let naming = auth_connections::table.filter(auth_connections::proxy_id.eq(id));
            if diesel::select(diesel::dsl::exists(naming)).get_result(connection).await? {
                return Ok(ProxyDeleted::InUse);
            }
            diesel::update(proxies::table.find(id)).set(proxies::deleted_at.eq(at)).execute(connection).await?;
            Ok(ProxyDeleted::Yes)
        };
        self.database.transaction_or("proxy.delete", work, Err).await
    }

    async fn due(&self, before: OffsetDateTime, now: OffsetDateTime, most: u32) -> Result<Vec<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let due = proxies::table.filter(proxies::deleted_at.is_null()).filter(proxies::check_taken_at.lt(before));
            let due = due.order(proxies::check_taken_at).limit(i64::from(most));
            let ids: Vec<Uuid> = due.select(proxies::id).for_update().skip_locked().load(connection).await?;
            let taken = diesel::update(proxies::table.filter(proxies::id.eq_any(ids)));
            let taken = taken.set(proxies::check_taken_at.eq(now)).returning(ProxyRow::as_select());
            all(taken.get_results(connection).await?)
        };
        self.database.transaction("proxy.due", work).await
    }

    async fn sealed_with_other_key(&self, key: KeyId, most: u32) -> Result<Vec<(ProxyId, Vec<u8>)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let statement = diesel::sql_query(
                "SELECT id, sealed_password AS sealed FROM proxies
                 WHERE sealed_password IS NOT NULL AND substring(sealed_password FROM 2 FOR 8) <> $1 ORDER BY id LIMIT $2",
            );
            let statement = statement.bind::<sql_types::Binary, _>(key.0.to_vec());
            let rows: Vec<Sealed> = statement.bind::<sql_types::BigInt, _>(i64::from(most)).load(connection).await?;
            Ok(rows.into_iter().map(|row| (ProxyId::from_ulid(ulid(row.id)), row.sealed)).collect())
        };
        self.database.fetch("proxy.sealed_otherwise", work).await
    }

    async fn reseal(&self, id: ProxyId, current: &[u8], next: &[u8]) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = proxies::table.find(uuid(id.ulid())).filter(proxies::sealed_password.eq(current));
            diesel::update(row).set(proxies::sealed_password.eq(next)).execute(connection).await?;
            Ok(())
        };
        self.database.call("proxy.reseal", work).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = proxies::table.filter(proxies::sealed_password.is_not_null());
            let statement =
                rows.select(diesel::dsl::sql::<sql_types::Binary>("substring(sealed_password FROM 1 FOR 9)"));
            let found: Vec<Vec<u8>> = statement.distinct().load(connection).await?;
            Ok(found.iter().filter_map(|head| KeyId::of(head)).collect())
        };
        self.database.fetch("proxy.keys", work).await
    }
}

#[derive(QueryableByName)]
struct Sealed {
    #[diesel(sql_type = sql_types::Uuid)]
    id: Uuid,
    #[diesel(sql_type = sql_types::Binary)]
    sealed: Vec<u8>,
}
