//! Proxies, with sealed passwords.

use async_trait::async_trait;
use casement_domain::name::LabelName;
use casement_domain::organization::{Limit, admit_one};
use casement_domain::page::{Listed, Page};
use casement_domain::proxy::{
    BypassHost, CaBundle, Exit, ExitMember, OwnProxy, Proxy, ProxyChecked, ProxyConfig, ProxyDeleted, ProxyFailure,
    ProxyFilter, ProxyProtocol, ProxyRepository, ProxyStatus, ProxyStored, ProxyType,
};
use casement_domain::sealing::KeyId;
use casement_domain::{ProjectId, ProxyId, StoreError};
use diesel::dsl::exists;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde_json::Value;
use time::OffsetDateTime;

use crate::column::{Column, ColumnValue, Stored, row};
use crate::database::repository;
use crate::error::{BadRow, CallError};
use crate::network::with_route_by;
use crate::project;
use crate::query::{all, contains, counted, find, is_there};
use crate::schema::{auth_connections, browser_pools, proxies};
use crate::sealed::{head, under_other_key};

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = proxies, check_for_backend(diesel::pg::Pg))]
    struct ProxyRow for Proxy {
        id: Column<ProxyId>,
        project: Column<ProjectId> as project_id,
        name: Option<Column<LabelName>>,
        kind: Column<ProxyType> as type_,
        protocol: Column<ProxyProtocol>,
        #[diesel(embed)]
        config: ConfigColumns,
        bypass: Vec<Column<BypassHost>> as bypass_hosts,
        status: Column<ProxyStatus>,
        last_checked: Option<OffsetDateTime>,
        ip_address: Option<String>,
        created_at: OffsetDateTime,
        failure: Option<Column<ProxyFailure>>,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Default, Insertable)]
    #[diesel(table_name = proxies, check_for_backend(diesel::pg::Pg))]
    /// All `None` but `exit` for a rented proxy.
    struct ConfigColumns {
        host: Option<String>,
        port: Option<Column<u16>>,
        username: Option<String>,
        sealed_password: Option<Vec<u8>>,
        exit: Option<Column<Exit>>,
        ca_bundle: Option<Column<CaBundle>>,
    }
}

impl Stored<ProxyConfig> for ConfigColumns {
    fn of(config: &ProxyConfig) -> Self {
        match config.clone() {
            ProxyConfig::Own(OwnProxy { host, port, username, password, ca_bundle }) => Self {
                host: Some(host),
                port: Some(Column(port)),
                username,
                sealed_password: password,
                exit: None,
                ca_bundle: ca_bundle.map(Column),
            },
            ProxyConfig::Rented(exit) => Self { exit: Some(Column(exit)), ..Self::default() },
        }
    }

    fn value(self) -> Result<ProxyConfig, BadRow> {
        match (self.exit, self.host, self.port) {
            (Some(Column(exit)), ..) => Ok(ProxyConfig::Rented(exit)),
            (None, Some(host), Some(Column(port))) => {
                let (username, password) = (self.username, self.sealed_password);
                let ca_bundle = self.ca_bundle.map(|column| column.0);
                Ok(ProxyConfig::Own(OwnProxy { host, port, username, password, ca_bundle }))
            }
            (None, ..) => Err(BadRow::new("proxies.host", "none")),
        }
    }
}

impl ColumnValue for Exit {
    type Raw = Value;

    fn to_raw(&self) -> Value {
        let given = |member: &ExitMember| Some((member.as_str().to_owned(), self.get(*member)?.into()));
        Value::Object(ExitMember::ALL.iter().filter_map(given).collect())
    }

    fn from_raw(raw: Value) -> Result<Self, String> {
        let given = |member: ExitMember| raw[member.as_str()].as_str().map(str::to_owned);
        Ok(Self {
            country: given(ExitMember::Country),
            state: given(ExitMember::State),
            city: given(ExitMember::City),
            zip: given(ExitMember::Zip),
            asn: given(ExitMember::Asn),
            os: given(ExitMember::Os),
        })
    }
}

/// Locks the proxies, each given once, until the transaction ends, so that none is deleted meanwhile. `false` if one is
/// missing.
pub(crate) async fn lock(connection: &mut AsyncPgConnection, ids: &[ProxyId]) -> Result<bool, CallError> {
    if ids.is_empty() {
        return Ok(true);
    }
    let rows = stored().filter(proxies::id.eq_any(ids.iter().copied().map(Column))).select(proxies::id);
    // In the order of their ids, so that two transactions do not wait for each other.
    let locked: Vec<Column<ProxyId>> = rows.order(proxies::id).for_share().load(connection).await?;
    Ok(locked.len() == ids.len())
}

/// The proxies that are not deleted.
#[diesel::dsl::auto_type(no_type_alias)]
fn stored() -> _ {
    proxies::table.filter(proxies::deleted_at.is_null())
}

repository! {
    /// Proxies in PostgreSQL.
    PgProxies
}

#[async_trait]
impl ProxyRepository for PgProxies {
    async fn create(&self, proxy: &Proxy, max: u32) -> Result<ProxyStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            if !project::lock(connection, proxy.project).await? {
                return Ok(ProxyStored::ProjectGone);
            }
            let used = stored().filter(proxies::project_id.eq(Column(proxy.project))).count();
            if let Err(refused) = admit_one(Limit::ProjectProxies, max, counted(connection, used).await?) {
                return Ok(ProxyStored::LimitExceeded(refused));
            }
            let taken_at = proxy.last_checked.unwrap_or(proxy.created_at);
            let row = (ProxyRow::of(proxy), proxies::check_taken_at.eq(taken_at));
            diesel::insert_into(proxies::table).values(row).execute(connection).await?;
            Ok(ProxyStored::Yes)
        };
        self.database.transaction("proxy.create", work).await
    }

    async fn find(&self, project: ProjectId, id: ProxyId) -> Result<Option<Proxy>, StoreError> {
        let row = stored().find(Column(id)).filter(proxies::project_id.eq(Column(project)));
        self.database.find("proxy.find", row.select(ProxyRow::as_select())).await
    }

    async fn named(&self, project: ProjectId, name: &str) -> Result<Vec<Proxy>, StoreError> {
        let rows = stored().filter(proxies::project_id.eq(Column(project))).filter(proxies::name.eq(name)).limit(2);
        self.database.all("proxy.named", rows.select(ProxyRow::as_select())).await
    }

    async fn find_any(&self, id: ProxyId) -> Result<Option<Proxy>, StoreError> {
        self.database.find("proxy.find_any", proxies::table.find(Column(id)).select(ProxyRow::as_select())).await
    }

    async fn list(&self, project: ProjectId, filter: &ProxyFilter, page: Page) -> Result<Listed<Proxy>, StoreError> {
        let mut rows = stored().filter(proxies::project_id.eq(Column(project))).into_boxed();
        if let Some(name) = &filter.name {
            rows = rows.filter(proxies::name.eq(name));
        }
        if let Some(query) = &filter.query {
            let named = contains("proxies.name", query).or(contains("proxies.host", query));
            rows = rows.filter(named.or(contains("proxies.ip_address", query)));
        }
        let rows = rows.order((proxies::created_at.desc(), proxies::id.desc()));
        self.database.page("proxy.list", page, rows.select(ProxyRow::as_select())).await
    }

    async fn rename(&self, project: ProjectId, id: ProxyId, name: &LabelName) -> Result<Option<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = stored().find(Column(id)).filter(proxies::project_id.eq(Column(project)));
            let renamed = diesel::update(row).set(proxies::name.eq(name.as_str()));
            find(connection, renamed.returning(ProxyRow::as_select())).await
        };
        self.database.call("proxy.rename", work).await
    }

    async fn checked(&self, id: ProxyId, found: &ProxyChecked) -> Result<Option<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = stored().find(Column(id));
            let newer = row.filter(proxies::last_checked.is_null().or(proxies::last_checked.le(found.at)));
            let known = (
                proxies::status.eq(Column(found.status)),
                proxies::failure.eq(found.failure.map(Column)),
                proxies::last_checked.eq(found.at),
                found.ip_address.as_ref().map(|address| proxies::ip_address.eq(address)),
            );
            diesel::update(newer).set(known).execute(connection).await?;
            find(connection, row.select(ProxyRow::as_select())).await
        };
        self.database.call("proxy.checked", work).await
    }

    async fn delete(&self, project: ProjectId, id: ProxyId, at: OffsetDateTime) -> Result<ProxyDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = stored().find(Column(id)).filter(proxies::project_id.eq(Column(project)));
            // Locks the row before it looks for pools: storing a pool locks this row too, so that pool is visible
            // afterwards.
            if !is_there(connection, row.select(proxies::id).for_update()).await? {
                return Ok(ProxyDeleted::NotFound);
            }
            let routed = browser_pools::network.contains(with_route_by(id));
            let pools = browser_pools::table.filter(browser_pools::proxy_id.eq(Column(id)).or(routed));
            let pools = exists(pools.filter(browser_pools::deleted_at.is_null()));
            let connections = exists(auth_connections::table.filter(auth_connections::proxy_id.eq(Column(id))));
            if diesel::select(pools.or(connections)).get_result(connection).await? {
                return Ok(ProxyDeleted::InUse);
            }
            diesel::update(proxies::table.find(Column(id))).set(proxies::deleted_at.eq(at)).execute(connection).await?;
            Ok(ProxyDeleted::Yes)
        };
        self.database.transaction("proxy.delete", work).await
    }

    async fn due(&self, before: OffsetDateTime, now: OffsetDateTime, max: u32) -> Result<Vec<Proxy>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let due = stored().filter(proxies::check_taken_at.lt(before));
            let due = due.order(proxies::check_taken_at).limit(max.into()).select(proxies::id);
            let ids: Vec<Column<ProxyId>> = due.for_update().skip_locked().load(connection).await?;
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let taken = diesel::update(proxies::table.filter(proxies::id.eq_any(ids)));
            let taken = taken.set(proxies::check_taken_at.eq(now)).returning(ProxyRow::as_select());
            all(connection, taken).await
        };
        self.database.transaction("proxy.due", work).await
    }

    async fn sealed_with_other_key(&self, key: KeyId, max: u32) -> Result<Vec<(ProxyId, Vec<u8>)>, StoreError> {
        let rows = proxies::table.filter(under_other_key("sealed_password", key)).order(proxies::id);
        let rows = rows.limit(max.into()).select((proxies::id, proxies::sealed_password.assume_not_null()));
        self.database.all::<(Column<ProxyId>, Vec<u8>), _>("proxy.sealed_otherwise", rows).await
    }

    async fn reseal(&self, id: ProxyId, current: &[u8], next: &[u8]) -> Result<(), StoreError> {
        let row = proxies::table.find(Column(id)).filter(proxies::sealed_password.eq(current));
        self.database.change("proxy.reseal", diesel::update(row).set(proxies::sealed_password.eq(next))).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        let sealed = proxies::table.filter(proxies::sealed_password.is_not_null());
        self.database.keys("proxy.keys", sealed.select(head("sealed_password")).distinct()).await
    }
}
