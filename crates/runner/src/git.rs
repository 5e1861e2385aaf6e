//! Fetches a source from a Git repository, in a sandbox that reaches only the repository's origin.
//!
//! The sandbox runs no code of a caller, so it may hold a token. The token is passed in the environment of `git`, not
//! on its command line.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use casement_domain::deployment::PackagePath;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::config::ca_bundle;
use crate::protocol::Command;

/// The path of the fetched source in the sandbox, as a ZIP archive.
pub(crate) const ARCHIVE: &str = "/tmp/source.zip";

/// Fetches the ref `$2` of the repository `$1` and writes its folder `$3` (or everything, if empty) as an archive to
/// `$4`. Runs no hooks, fetches no submodules and follows no LFS pointers. Fetches only the ref if it is complete; a
/// shortened commit requires all refs.
const SCRIPT: &str = r#"
set -eu
case "$2" in -*|+*) false ;; *) git check-ref-format --allow-onelevel "$2" ;; esac || { echo "the ref is none that Git knows" >&2; exit 1; }
git init --quiet --bare /tmp/repository
cd /tmp/repository
if git fetch --quiet --depth=1 --no-tags --no-recurse-submodules --no-auto-gc --end-of-options "$1" "$2" 2>/tmp/first; then
  commit=$(git rev-parse --verify --quiet --end-of-options "FETCH_HEAD^{commit}")
elif printf %s "$2" | grep -Eq '^[0-9a-f]{4,40}$'; then
  git fetch --quiet --no-recurse-submodules --no-auto-gc --end-of-options "$1" '+refs/heads/*:refs/heads/*' '+refs/tags/*:refs/tags/*'
  commit=$(git rev-parse --verify --quiet --end-of-options "$2^{commit}") || { echo "there is no commit $2" >&2; exit 1; }
else
  cat /tmp/first >&2
  exit 1
fi
echo "fetched commit $commit"
if [ -n "$3" ]; then
  git cat-file -e "$commit:$3" 2>/dev/null || { echo "there is no folder $3 in it" >&2; exit 1; }
  git archive --format=zip --output="$4" "$commit" -- "$3"
else
  git archive --format=zip --output="$4" "$commit"
fi
"#;

/// Returns the command that fetches a source.
pub(crate) fn command(
    url: &Url,
    git_ref: &str,
    path: Option<&PackagePath>,
    token: Option<&SecretString>,
    environment: Vec<(String, String)>,
    seconds: u64,
) -> Command {
    let path = path.map_or("", PackagePath::as_str);
    let argv = ["/bin/sh", "-c", SCRIPT, "fetch", url.as_str(), git_ref, path, ARCHIVE].map(str::to_owned).to_vec();
    let mut env = environment;
    env.extend(git_environment(url, token));
    Command { argv, env, cwd: "/tmp".to_owned(), seconds }
}

/// Returns the environment of `git`: the allowed transports, no prompts, and no other configuration.
fn git_environment(url: &Url, token: Option<&SecretString>) -> Vec<(String, String)> {
    let mut configuration = vec![
        ("http.followRedirects".to_owned(), "false".to_owned()),
        ("core.hooksPath".to_owned(), "/dev/null".to_owned()),
        ("core.askPass".to_owned(), "/bin/false".to_owned()),
        ("submodule.recurse".to_owned(), "false".to_owned()),
        ("fetch.fsckObjects".to_owned(), "true".to_owned()),
        ("core.attributesFile".to_owned(), "/dev/null".to_owned()),
        ("gc.auto".to_owned(), "0".to_owned()),
    ];
    if let Some(token) = token {
        let basic = BASE64_STANDARD.encode(format!("x-access-token:{}", token.expose_secret()));
        // Applies to this origin only, even after a redirect.
        let origin = url.origin().ascii_serialization();
        configuration.push((format!("http.{origin}/.extraHeader"), format!("Authorization: Basic {basic}")));
    }
    let mut env: Vec<(String, String)> = [
        ("GIT_ALLOW_PROTOCOL", "http:https"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_LITERAL_PATHSPECS", "1"),
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        ("GIT_ADVICE", "0"),
        // An origin on this machine's loopback address is reached through the egress too.
        ("NO_PROXY", ""),
        ("no_proxy", ""),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    env.extend(ca_bundle().and_then(|path| Some(("GIT_SSL_CAINFO".to_owned(), path.to_str()?.to_owned()))));
    env.push(("GIT_CONFIG_COUNT".to_owned(), configuration.len().to_string()));
    for (index, (key, value)) in configuration.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{index}"), key));
        env.push((format!("GIT_CONFIG_VALUE_{index}"), value));
    }
    env
}

/// Replaces the token in the text, plain and in base64.
pub(crate) fn without_token(text: &str, token: Option<&SecretString>) -> String {
    let Some(token) = token.map(|token| token.expose_secret()).filter(|token| !token.is_empty()) else {
        return text.to_owned();
    };
    let basic = BASE64_STANDARD.encode(format!("x-access-token:{token}"));
    let mut shown = String::new();
    write!(shown, "{}", text.replace(token, "***").replace(&basic, "***")).ok();
    shown
}
