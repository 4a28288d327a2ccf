//! The responder's certificate and key for TLS.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};

use super::ServeError;

/// The only protocol offered and spoken here (RFC 7301).
const ALPN: &[u8] = b"http/1.1";

/// For whom a self-signed certificate is.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    config: Arc<ServerConfig>,
    chain_pem: String,
}

impl Certificate {
    /// Reads a chain of certificates, the server's own first, and its key (PKCS #1, PKCS #8 or SEC 1), both PEM.
    ///
    /// # Errors
    /// If a file cannot be read, has no certificate or key in it, or key and certificate do not belong together.
    pub fn from_files(chain: &Path, key: &Path) -> Result<Certificate, ServeError> {
        let attempted = |file: &Path, what: &str| format!("read a {what} from {}", file.display());
        let chain_pem = fs::read_to_string(chain).map_err(refused(attempted(chain, "certificate")))?;
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(refused(attempted(chain, "certificate")))?;
        if certificates.is_empty() {
            let none = io::Error::new(io::ErrorKind::InvalidData, "there is no CERTIFICATE in it");
            return Err(refused(attempted(chain, "certificate"))(none));
        }
        let key_pem = fs::read(key).map_err(refused(attempted(key, "key")))?;
        let private_key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(refused(attempted(key, "key")))?;
        let together = format!("use the key {} with the certificate {}", key.display(), chain.display());
        let config = server_config(certificates, private_key).map_err(refused(together))?;
        Ok(Certificate { config, chain_pem })
    }

    /// Makes one for the same names as [`Certificate::self_signed`], for a server that reads files: the chain and its
    /// key, both PEM. A caller that writes the key must restrict access to it.
    ///
    /// # Errors
    /// If the machine has no random numbers.
    pub fn self_signed_pem() -> Result<(String, String), ServeError> {
        let made = made()?;
        Ok((made.cert.pem(), made.signing_key.serialize_pem()))
    }

    /// Makes one for `localhost`, `127.0.0.1` and `::1`, with a new key that is never written to a file.
    ///
    /// # Errors
    /// If the machine has no random numbers.
    pub fn self_signed() -> Result<Certificate, ServeError> {
        let made = made()?;
        let private_key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        let chain_pem = made.cert.pem();
        let config = server_config(vec![made.cert.into()], private_key).map_err(refused(MAKE.to_owned()))?;
        Ok(Certificate { config, chain_pem })
    }

    /// The chain in PEM, for clients that are to trust it.
    pub fn chain_pem(&self) -> &str {
        &self.chain_pem
    }

    /// The server's side of a new connection.
    pub(super) fn accept(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.config))
    }
}

const MAKE: &str = "make a certificate";

fn made() -> Result<rcgen::CertifiedKey<rcgen::KeyPair>, ServeError> {
    rcgen::generate_simple_self_signed(OWN_NAMES.map(str::to_owned)).map_err(refused(MAKE.to_owned()))
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A session is in its ticket, as nginx has it. The library's store has 256 of them, two for each connection, and
    // would have lost a session before it is asked for where more than a hundred connections begin at once.
    config.ticketer = rustls::crypto::ring::Ticketer::new()?;
    Ok(Arc::new(config))
}

fn refused<E: Error + Send + Sync + 'static>(attempted: String) -> impl FnOnce(E) -> ServeError {
    move |why| ServeError::Certificate { attempted, why: Box::new(why) }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};

    use super::*;

    /// Holds a handshake in memory, and what follows of it. How it was held, by what the server says.
    fn shake_hands(certificate: &Certificate, client: &Arc<ClientConfig>) -> HandshakeKind {
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
        let mut server = certificate.accept().unwrap();
        loop {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                server.read_tls(&mut rest).unwrap();
                server.process_new_packets().unwrap();
            }
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            if wire.is_empty() {
                return server.handshake_kind().unwrap();
            }
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets().unwrap();
            }
        }
    }

    #[test]
    fn a_session_is_resumed_however_many_began_meanwhile() {
        let certificate = Certificate::self_signed().unwrap();
        let mut roots = RootCertStore::empty();
        for own in CertificateDer::pem_slice_iter(certificate.chain_pem().as_bytes()) {
            roots.add(own.unwrap()).unwrap();
        }
        let client = || {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            Arc::new(config.unwrap().with_root_certificates(roots.clone()).with_no_client_auth())
        };
        let first = client();
        assert_eq!(shake_hands(&certificate, &first), HandshakeKind::Full);
        for _ in 0..200 {
            assert_eq!(shake_hands(&certificate, &client()), HandshakeKind::Full);
        }
        assert_eq!(shake_hands(&certificate, &first), HandshakeKind::Resumed);
    }
}
