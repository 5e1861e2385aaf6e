//! Requests for new deployments, and their checks.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::{DeploymentSource, Entrypoint, PackagePath};
use crate::field::{
    FieldCode, Fields, InvalidValue, check_length, check_max_bytes, check_max_length, check_no_control_characters,
};
use crate::session::{NotSupported, Refusal};
use crate::web_url;

/// The default version.
const DEFAULT_VERSION: &str = "latest";
/// The maximum numbers of variables of a deployment, of bytes of one value, and of bytes of all values.
pub const MAX_VARIABLES: usize = 200;
/// The maximum length of the value of an environment variable, in bytes.
pub const MAX_VALUE: usize = 32 << 10;
const MAX_VALUES: usize = 256 << 10;
/// The maximum numbers of characters of the name of a variable, a version, a ref and a URL, and of bytes of a token.
const MAX_NAME: usize = 128;
/// The maximum length of a version, in characters.
pub const MAX_VERSION: usize = 255;
/// The maximum length of the name of a Git reference, in characters.
pub const MAX_REF: usize = 255;
/// The maximum length of the URL of a repository, in characters.
pub const MAX_URL: usize = 2048;
/// The maximum length of the token for a repository, in bytes.
pub const MAX_TOKEN: usize = 8192;

/// The rules of an installation.
#[derive(Clone, Debug)]
pub struct DeploymentRules {
    /// The accepted regions; the first is the default.
    pub regions: Vec<String>,
    /// The accepted origins of repositories.
    pub origins: Vec<Url>,
}

/// The unchecked fields of a new deployment.
#[derive(Default)]
pub struct DeploymentRequest {
    /// The path of the entrypoint; required with a file.
    pub entrypoint_rel_path: Option<String>,
    /// The version of the apps. Default: `latest`.
    pub version: Option<String>,
    /// The region. Default: the first one of the installation.
    pub region: Option<String>,
    /// True if existing apps with the same version may be replaced. Default: false.
    pub force: Option<bool>,
    /// The environment variables. Default: none.
    pub env_vars: Option<BTreeMap<String, SecretString>>,
    /// The repository to use instead of a file.
    pub source: Option<SourceRequest>,
    /// True if a file is sent.
    pub file: bool,
}

/// The unchecked description of a repository.
#[derive(Default)]
pub struct SourceRequest {
    /// The type; required: `github`.
    pub kind: Option<String>,
    /// The URL; required.
    pub url: Option<String>,
    /// The branch, tag or commit; required.
    pub git_ref: Option<String>,
    /// The path of the entrypoint relative to `path`; required.
    pub entrypoint: Option<String>,
    /// The folder of the package. Default: the root.
    pub path: Option<String>,
    /// The credentials of a private repository.
    pub auth: Option<AuthRequest>,
}

/// The unchecked credentials of a private repository.
#[derive(Default)]
pub struct AuthRequest {
    /// The method; required: `github_token`.
    pub method: Option<String>,
    /// The token; required.
    pub token: Option<SecretString>,
}

/// Omits the secrets.
impl fmt::Debug for DeploymentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeploymentRequest").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A new deployment, checked but not yet sealed.
pub(super) struct NewDeployment {
    pub(super) entrypoint: Entrypoint,
    pub(super) version: String,
    pub(super) region: String,
    pub(super) force: bool,
    pub(super) env_vars: BTreeMap<String, SecretString>,
    pub(super) source: DeploymentSource,
    pub(super) token: Option<SecretString>,
}

impl DeploymentRequest {
    pub(super) fn parse(self, rules: &DeploymentRules) -> Result<NewDeployment, Refusal> {
        let mut fields = Fields::new();
        match (self.file, &self.source) {
            (true, Some(_)) => {
                fields
                    .refuse("source", InvalidValue::new(FieldCode::MutuallyExclusive, "and file exclude one another"));
            }
            (false, None) => {
                fields.refuse("file", InvalidValue::new(FieldCode::Required, "is required, or source instead"))
            }
            (true, None) | (false, Some(_)) => {}
        }
        let path = |text: &str| PackagePath::parse(text);
        let given = match self.source {
            None if self.file => fields.take_required("entrypoint_rel_path", self.entrypoint_rel_path.as_deref(), path),
            _ => fields.take_optional("entrypoint_rel_path", self.entrypoint_rel_path.as_deref(), path),
        };
        let version = fields.take_optional("version", self.version.as_deref(), version);
        let region = fields.take_optional("region", self.region.as_deref(), |text| region(text, &rules.regions));
        let env_vars = fields.take_optional("env_vars", self.env_vars, variables).unwrap_or_default();
        let source = self.source.and_then(|request| request.parse(&rules.origins, given.as_ref(), &mut fields));
        fields.finish()?;
        let (field, path, source, token) = match source {
            Some(found) => ("source.entrypoint", found.entrypoint, found.source, found.token),
            None => {
                let path = given.unwrap_or_else(|| unreachable!("a file without an entrypoint is refused"));
                ("entrypoint_rel_path", path, DeploymentSource::File, None)
            }
        };
        let why = "only Python (.py) and Node (.ts, .mts, .js, .mjs, .cjs) programs can be run";
        Ok(NewDeployment {
            entrypoint: Entrypoint::at(path).map_err(|_| NotSupported { field, why: why.into() })?,
            version: version.unwrap_or_else(|| DEFAULT_VERSION.to_owned()),
            region: region.or_else(|| rules.regions.first().cloned()).unwrap_or_default(),
            force: self.force.unwrap_or(false),
            env_vars,
            source,
            token,
        })
    }
}

struct Repository {
    entrypoint: PackagePath,
    source: DeploymentSource,
    token: Option<SecretString>,
}

impl SourceRequest {
    fn parse(self, origins: &[Url], given: Option<&PackagePath>, fields: &mut Fields) -> Option<Repository> {
        let only = |expected: &'static str| {
            move |text: &str| match text {
                text if text == expected => Ok(()),
                _ => Err(InvalidValue::new(FieldCode::NotAllowed, format!("must be {expected}"))),
            }
        };
        let kind = fields.take_required("source.type", self.kind.as_deref(), only("github"));
        let url = fields.take_required("source.url", self.url.as_deref(), |text| repository(text, origins));
        let git_ref = fields.take_required("source.ref", self.git_ref.as_deref(), git_ref);
        let entrypoint = fields.take_required("source.entrypoint", self.entrypoint.as_deref(), PackagePath::parse);
        // The root of the repository is the default.
        let path = self.path.as_deref().filter(|text| !matches!(*text, "" | "." | "/" | "./"));
        let path = fields.take_optional("source.path", path, PackagePath::parse);
        let token = self.auth.and_then(|auth| {
            let method = fields.take_required("source.auth.method", auth.method.as_deref(), only("github_token"));
            let token = fields.take_required("source.auth.token", auth.token, token);
            method.and(token)
        });
        if let (Some(given), Some(entrypoint)) = (given, &entrypoint)
            && given != entrypoint
        {
            let message = "must be absent or equal to source.entrypoint";
            fields.refuse("entrypoint_rel_path", InvalidValue::new(FieldCode::MutuallyExclusive, message));
        }
        kind?;
        let source = DeploymentSource::Git { url: url?, git_ref: git_ref?, path };
        Some(Repository { entrypoint: entrypoint?, source, token })
    }
}

/// The pattern of regions. It also accepts regions that the installation does not have.
pub const REGION_PATTERN: &str = r"^[a-z0-9-]+\.[a-z0-9_-]+$";
/// The pattern of the names of environment variables.
pub const VARIABLE_PATTERN: &str = "^[A-Za-z_][A-Za-z0-9_]{0,127}$";
/// The pattern of tokens.
pub const TOKEN_PATTERN: &str = "^[!-~]+$";

fn version(text: &str) -> Result<String, InvalidValue> {
    check_length(text, MAX_VERSION)?;
    check_no_control_characters(text)?;
    Ok(text.to_owned())
}

fn region(text: &str, known: &[String]) -> Result<String, InvalidValue> {
    let word = |part: &str, more: fn(u8) -> bool| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || more(b))
    };
    let shaped = text.split_once('.').is_some_and(|(a, b)| word(a, |_| false) && word(b, |b| b == b'_'));
    if !shaped {
        return Err(InvalidValue::new(
            FieldCode::InvalidFormat,
            "must be a provider, a dot and a zone, as aws.us-east-1a",
        ));
    }
    if !known.iter().any(|known| known == text) {
        return Err(InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {}", known.join(", "))));
    }
    Ok(text.to_owned())
}

fn variables(given: BTreeMap<String, SecretString>) -> Result<BTreeMap<String, SecretString>, InvalidValue> {
    if given.len() > MAX_VARIABLES {
        return Err(InvalidValue::new(FieldCode::TooMany, format!("must be at most {MAX_VARIABLES}")));
    }
    InvalidValue::any(given.iter().filter_map(|(name, value)| variable(name, value.expose_secret()).err()))?;
    let all: usize = given.values().map(|value| value.expose_secret().len()).sum();
    if all > MAX_VALUES {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_VALUES} bytes together")));
    }
    Ok(given)
}

fn variable(name: &str, value: &str) -> Result<(), InvalidValue> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && (1..=MAX_NAME).contains(&name.len());
    if !plain {
        // An invalid name is not repeated, because it may be a misplaced secret.
        let message = "the name of a variable must have 1 to 128 letters, digits and '_', and begin with no digit";
        return Err(InvalidValue::new(FieldCode::InvalidFormat, message));
    }
    check_max_bytes(value, MAX_VALUE).map_err(|bad| bad.of(name))?;
    if value.contains('\0') {
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold a NUL").of(name));
    }
    Ok(())
}

fn repository(text: &str, origins: &[Url]) -> Result<Url, InvalidValue> {
    check_max_length(text, MAX_URL)?;
    let bad = |text: &str| InvalidValue::new(FieldCode::InvalidFormat, text);
    let url = web_url::read(text).ok_or_else(|| bad("must be an absolute URL"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(InvalidValue::new(FieldCode::Blocked, "may not hold credentials; they belong into auth"));
    }
    if !origins.iter().any(|origin| origin.origin().is_tuple() && origin.origin() == url.origin()) {
        let known: Vec<_> = origins.iter().map(|origin| origin.origin().ascii_serialization()).collect();
        return Err(InvalidValue::new(FieldCode::NotAllowed, format!("must lie at one of {}", known.join(", "))));
    }
    let name = |part: &str| {
        !part.is_empty()
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    };
    let path = url.path().trim_start_matches('/').strip_suffix('/').unwrap_or(url.path().trim_start_matches('/'));
    let names: Vec<&str> = path.split('/').collect();
    if url.query().is_some() || url.fragment().is_some() || names.len() != 2 || !names.into_iter().all(name) {
        return Err(bad("must be <origin>/<owner>/<repository>"));
    }
    Ok(url)
}

fn git_ref(text: &str) -> Result<String, InvalidValue> {
    let bad = |text: &str| Err(InvalidValue::new(FieldCode::InvalidFormat, text));
    check_length(text, MAX_REF)?;
    if text.starts_with('-') {
        return bad("may not begin with '-'");
    }
    // The rules of git-check-ref-format(1).
    let odd = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    let parts_are_plain =
        text.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"));
    if text.contains(odd) || text.contains("..") || text.contains("@{") || text.ends_with('.') || !parts_are_plain {
        return bad("must be the name of a branch or tag, or a commit");
    }
    Ok(text.to_owned())
}

fn token(token: SecretString) -> Result<SecretString, InvalidValue> {
    let text = token.expose_secret();
    match text.len() {
        0 => Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 character")),
        1..=MAX_TOKEN if !text.bytes().all(|b| b.is_ascii_graphic()) => {
            Err(InvalidValue::new(FieldCode::InvalidFormat, "may hold visible ASCII characters only"))
        }
        1..=MAX_TOKEN => Ok(token),
        _ => Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_TOKEN} characters"))),
    }
}
