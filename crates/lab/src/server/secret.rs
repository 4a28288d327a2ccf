//! The certificate and key of a server that speaks TLS.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::LabError;

/// The files with a server's certificate chain and key, PEM.
#[derive(Debug, Clone)]
pub(crate) struct Secret {
    /// Its certificate, which clients trust.
    pub(crate) chain: PathBuf,
    /// The key, which only root can read.
    pub(crate) key: PathBuf,
}

impl Secret {
    /// Makes a certificate of its own for each server.
    pub(crate) fn make(candidate: &str, dir: &Path) -> Result<Secret, LabError> {
        let made = load::serve::Certificate::self_signed_pem();
        let (chain_pem, key_pem) = made.map_err(|error| LabError::Server {
            whose: format!("the server of {candidate}"),
            what: format!("could not have a certificate ({error})"),
            log: String::new(),
        })?;
        let secret = Secret { chain: dir.join("tls.pem"), key: dir.join("tls.key") };
        for (path, text, mode) in [(&secret.chain, chain_pem, 0o644), (&secret.key, key_pem, 0o600)] {
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path);
            let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(LabError::file("write", path))?;
        }
        Ok(secret)
    }
}
