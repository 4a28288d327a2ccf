//! The file by which an agent or routing daemon says that it has made the ways to other nodes in this boot.

use std::path::PathBuf;

use cni::{ErrorCode, Failure, Request};

use crate::failures::invalid_conf;

/// The key of the configuration that names the file. In a directory of `/run` it goes with a restart of the machine,
/// while the configuration stays.
pub(crate) const KEY: &str = "readiness_file";

/// The file that a configuration names.
///
/// # Errors
/// Code 7: it is no absolute path.
pub(crate) fn file(request: &Request) -> Result<Option<PathBuf>, Failure> {
    let own = request.own();
    let Some(value) = own.get(KEY).filter(|value| !value.is_null()) else { return Ok(None) };
    let path = value.as_str().map(PathBuf::from).filter(|path| path.is_absolute());
    path.map(Some)
        .ok_or_else(|| invalid_conf(format!("`{KEY}` is {value}; the absolute path of a file is expected")))
}

/// Fails as long as the file is not there. Whether the process lives that wrote it does not matter: what it made stays.
///
/// # Errors
/// Code 50: the file is not there, or cannot be looked at. Code 7 as of [`file`].
pub(crate) fn require(request: &Request) -> Result<(), Failure> {
    let Some(file) = file(request)? else { return Ok(()) };
    let why = match file.try_exists() {
        Ok(true) => return Ok(()),
        Ok(false) => "it is not there".to_owned(),
        Err(error) => error.to_string(),
    };
    let network = request.name()?;
    Err(Failure {
        details: Some(
            "the program that makes the ways to other nodes writes it: `hostgap agent`, once it has made them; its log says \
             why it has not"
                .to_owned(),
        ),
        ..Failure::new(
            ErrorCode::NOT_AVAILABLE,
            format!("network {network} does not reach other nodes yet: `{KEY}` is {}, and {why}", file.display()),
        )
    })
}
