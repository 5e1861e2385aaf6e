//! `/proxies`.

use actix_web::http::StatusCode;
use casement_domain::proxy::{Exit, Proxy, ProxyConfig, ProxyConfigRequest, ProxyFailure, ProxyFilter, ProxyRequest};
use serde::{Deserialize, Serialize};

use crate::{
    answer::{self, Answer, Moment},
    from_fields::{from_fields, option},
    operation::{ARCHIVED, LIMIT_REACHED, OTHER_PROJECT, Operations, Refusal},
    query::non_empty,
    request::{ProjectKey, Request},
    schema::{IntoParams, ToSchema},
};

/// A proxy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Proxy)]
pub(crate) struct ProxyBody {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    protocol: &'static str,
    /// `available` or `unavailable`, by the last check.
    status: &'static str,
    /// The reason why the last check failed: `unreachable`, `timeout`, `closed`, `reset`, `protocol`, `tls`,
    /// `authentication`, `unknown` or `target`.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'static str>,
    /// The hosts that are reached without it.
    bypass_hosts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_checked: Option<Moment>,
    /// The exit address at the last successful check.
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_address: Option<String>,
    config: ConfigBody,
}

/// The connection to a proxy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProxyConfig)]
#[serde(untagged)]
enum ConfigBody {
    /// The address of a proxy of the caller's own.
    Own(OwnBody),
    /// The exit of a proxy that the operator rents.
    Rented(ExitBody),
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnProxy)]
struct OwnBody {
    host: String,
    port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<String>,
    /// Whether it has a password, which is never shown.
    has_password: bool,
    /// Whether it has authorities of its own for its certificate.
    has_ca_bundle: bool,
}

/// The exit of a rented proxy; an absent field was not chosen.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProxyExit)]
struct ExitBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    country: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    city: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    os: Option<String>,
}

impl From<ProxyConfig> for ConfigBody {
    fn from(config: ProxyConfig) -> Self {
        match config {
            ProxyConfig::Own(own) => Self::Own(OwnBody {
                host: own.host,
                port: own.port,
                username: own.username,
                has_password: own.password.is_some(),
                has_ca_bundle: own.ca_bundle.is_some(),
            }),
            ProxyConfig::Rented(Exit { country, state, city, zip, asn, os }) => {
                Self::Rented(ExitBody { country, state, city, zip, asn, os })
            }
        }
    }
}

impl From<Proxy> for ProxyBody {
    fn from(proxy: Proxy) -> Self {
        Self {
            id: proxy.id.to_string(),
            name: proxy.name.map(|name| name.as_str().to_owned()),
            kind: proxy.kind.as_str(),
            protocol: proxy.protocol.as_str(),
            status: proxy.status.as_str(),
            failure: proxy.failure.map(ProxyFailure::as_str),
            bypass_hosts: proxy.bypass.iter().map(ToString::to_string).collect(),
            last_checked: proxy.last_checked.map(Moment),
            ip_address: proxy.ip_address,
            config: proxy.config.into(),
        }
    }
}

/// A proxy to create.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateProxy)]
pub(crate) struct ProxyInput {
    /// `custom` for one of your own; `datacenter`, `isp`, `residential` and `mobile` where this installation rents such. Required.
    #[serde(rename = "type")]
    #[schema(required, nullable = false)]
    kind: Option<String>,
    /// 1 to 255 characters; not unique.
    name: Option<String>,
    /// `http`, `https` or `socks5`. Default: `http`, or the protocol of a rented proxy.
    protocol: Option<String>,
    /// Host names, `*.` and a host name, addresses, networks as `10.0.0.0/8`; at most 100. Default: none.
    bypass_hosts: Option<Vec<String>>,
    /// Required for `custom`.
    config: Option<ConfigInput>,
}

/// The address of a proxy of your own, or the exit of a rented one.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateProxyConfig)]
struct ConfigInput {
    /// A host name or an address. Required for `custom`, which also accepts the following fields up to the password.
    host: Option<String>,
    /// 1 to 65535. Required for `custom`.
    port: Option<i64>,
    username: Option<String>,
    password: Option<String>,
    /// Certificates in PEM, at most 50: the only authorities that the certificate of a `custom` proxy with the protocol
    /// `https` may be from. Default: those that the machine trusts.
    ca_bundle: Option<String>,
    /// Two letters, of ISO 3166-1. Default for `datacenter` and `isp`: `US`.
    country: Option<String>,
    /// Two letters. For `residential` and `mobile`.
    state: Option<String>,
    /// In lower case and without blanks; needs a country. For `residential` and `mobile`.
    city: Option<String>,
    /// Five digits. For `residential`.
    zip: Option<String>,
    /// A network, as `AS3215`. For `residential`.
    asn: Option<String>,
    /// `windows`, `macos` or `android`. For `residential`.
    os: Option<String>,
}

impl From<ConfigInput> for ProxyConfigRequest {
    fn from(config: ConfigInput) -> Self {
        let ConfigInput { host, port, username, password, ca_bundle, country, state, city, zip, asn, os } = config;
        let exit = Exit { country, state, city, zip, asn, os };
        Self { host, port, username, password: password.map(Into::into), ca_bundle, exit }
    }
}

from_fields!(ProxyInput => ProxyRequest {
    kind, name, protocol, bypass_hosts via Option::unwrap_or_default, config via option
});

/// The changes of a proxy.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ProxyChanges {
    /// 1 to 255 characters. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
}

/// The options of a check.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CheckProxy {
    /// An http or https URL to fetch through it. The result is returned then, and not stored.
    url: Option<String>,
}

/// The refusal of a name that several proxies have.
const AMBIGUOUS: Refusal = ("400", "Several proxies have the name");

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Proxies", "The proxy does not exist");
    api.post("/proxies", "create_proxy", create_proxy)
        .summary("Creates a proxy. It is checked at once, for at most 10 s; one that fails the check is stored as `unavailable`.")
        .body::<ProxyInput>()
        .created::<ProxyBody>()
        .refuses([
            ("400", "A field breaks a rule, or this installation has no proxies of that type"),
            ARCHIVED,
            LIMIT_REACHED,
        ]);
    api.get("/proxies", "list_proxies", list_proxies)
        .summary("Lists proxies, newest first.")
        .query::<ProxyListParams>()
        .returns_page::<ProxyBody>();
    api.get("/proxies/{id_or_name}", "get_proxy", get_proxy)
        .summary("Returns a proxy, by id or name.")
        .returns::<ProxyBody>()
        .refuses([AMBIGUOUS, OTHER_PROJECT]);
    api.patch("/proxies/{id_or_name}", "update_proxy", update_proxy)
        .summary("Renames a proxy.")
        .body::<ProxyChanges>()
        .returns::<ProxyBody>()
        .refuses([("400", "A field breaks a rule, or several proxies have the name"), ARCHIVED]);
    api.delete("/proxies/{id_or_name}", "delete_proxy", delete_proxy)
        .summary("Deletes a proxy. Sessions that use it keep it.")
        .no_content("Deleted")
        .refuses([AMBIGUOUS, ("409", "A browser pool uses the proxy")]);
    api.post("/proxies/{id_or_name}/check", "check_proxy", check_proxy)
        .summary("Checks a proxy, for at most 10 s.")
        .body::<CheckProxy>()
        .returns::<ProxyBody>()
        .refuses([("400", "The URL is not permitted, or several proxies have the name")]);
}

async fn create_proxy(mut request: Request<ProjectKey>) -> Answer {
    let input = request.json::<ProxyInput>().await?.into();
    let stored = request.finish(|services, scope| async move { services.proxies.create(&scope, input).await }).await?;
    let body = ProxyBody::from(stored);
    Ok(answer::created(&format!("/proxies/{}", body.id), &body))
}

/// The filter of a list of proxies.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ProxyListParams {
    /// The whole name; case and accents are ignored.
    name: Option<String>,
    /// Part of the name, the host or the exit address.
    query: Option<String>,
}

async fn list_proxies(request: Request<ProjectKey>) -> Answer {
    let ProxyListParams { name, query } = request.query()?;
    let filter = ProxyFilter { name: non_empty(name), query: non_empty(query) };
    let page = request.services().proxies.list(request.scope(), &filter, request.page()?).await?;
    Ok(answer::list(&page.map(ProxyBody::from)))
}

async fn get_proxy(request: Request<ProjectKey>) -> Answer {
    let proxy = request.services().proxies.get(request.scope(), &request.path("id_or_name")?).await?;
    Ok(answer::record(StatusCode::OK, &ProxyBody::from(proxy)))
}

async fn update_proxy(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let ProxyChanges { name } = request.json().await?;
    let proxy = request.services().proxies.rename(request.scope(), &which, name.as_deref()).await?;
    Ok(answer::record(StatusCode::OK, &ProxyBody::from(proxy)))
}

async fn delete_proxy(request: Request<ProjectKey>) -> Answer {
    request.services().proxies.delete(request.scope(), &request.path("id_or_name")?).await?;
    Ok(answer::nothing())
}

async fn check_proxy(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let url = request.json::<CheckProxy>().await?.url;
    let checked =
        request.finish(|services, scope| async move { services.proxies.check(&scope, &which, url.as_deref()).await });
    Ok(answer::record(StatusCode::OK, &ProxyBody::from(checked.await?)))
}
