//! TLS towards a server.
//!
//! rustls does the handshake and the records. A TLS connection may allocate, because every TLS library does; that is
//! part of the cost of TLS.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, OtherError,
    RootCertStore, SignatureScheme,
};

use crate::socket::{receive, send};
use crate::tickets::Tickets;
use crate::{ConnectionError, LoadError};

/// How to speak TLS with a server. All connections of a target and its copies share its sessions.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// What becomes of the sessions that a server offers to go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions {
    /// A new connection goes on with one, as long as there are any. This is the usual.
    Resumed,
    /// None is kept: every handshake is a whole one.
    Forgotten,
}

/// Which certificates prove the server's identity.
#[derive(Debug, Clone, Copy)]
pub enum Trust<'a> {
    /// The certificates of this machine's store.
    System,
    /// Those of a PEM file.
    File(&'a Path),
    /// Any certificate. For tests with self-signed certificates; the measurement is the same.
    Anyone,
}

impl Tls {
    /// For a server of this name, which is a host name or an address.
    ///
    /// # Errors
    /// If the name cannot be in a certificate, or there are no certificates to trust.
    pub fn new(name: &str, trust: Trust<'_>) -> Result<Tls, LoadError> {
        let bad = |why: String| LoadError::Tls { name: name.to_owned(), why };
        let server = ServerName::try_from(name.to_owned()).map_err(|error| bad(error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(error.to_string()))?;
        let mut config = match trust {
            Trust::Anyone => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Credulous(provider)))
            }
            Trust::System => builder.with_root_certificates(system_roots().map_err(bad)?),
            Trust::File(path) => builder.with_root_certificates(file_roots(path).map_err(bad)?),
        }
        .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::store(Arc::new(Tickets::default()));
        Ok(Tls { config: Arc::new(config), name: server })
    }

    /// A copy without sessions, and with a policy for new ones.
    #[must_use]
    pub fn with_sessions(&self, sessions: Sessions) -> Tls {
        let mut config = (*self.config).clone();
        config.resumption = match sessions {
            Sessions::Resumed => Resumption::store(Arc::new(Tickets::default())),
            Sessions::Forgotten => Resumption::disabled(),
        };
        Tls { config: Arc::new(config), name: self.name.clone() }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("this machine has no certificates to trust; install ca-certificates".to_owned());
    }
    Ok(roots)
}

fn file_roots(path: &Path) -> Result<RootCertStore, String> {
    let unreadable = |error: &dyn fmt::Display| format!("{} cannot be read: {error}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() {
        return Err(format!("{} has no certificate in it", path.display()));
    }
    Ok(roots)
}

/// Believes every certificate, but only if the server has its key: a handshake is a whole one.
#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// One connection's side of TLS.
#[derive(Debug)]
pub(crate) struct Session(Box<ClientConnection>);

impl Session {
    pub(crate) fn new(tls: &Tls) -> Result<Session, ConnectionError> {
        let mut connection = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone())
            .map_err(|error| failed(&error))?;
        // Otherwise it takes 64 KiB that are not sent yet. What is open on a connection is limited by its depth.
        connection.set_buffer_limit(None);
        Ok(Session(Box::new(connection)))
    }

    /// Goes on with the handshake as far as the socket lets it. True when it is done.
    pub(crate) fn handshake(&mut self, socket: &OwnedFd) -> Result<bool, ConnectionError> {
        self.flush(socket)?;
        while self.0.is_handshaking() {
            match self.pull(socket)? {
                Pulled::Records => {}
                Pulled::Nothing => return Ok(false),
                Pulled::End => return Err(ConnectionError::Closed),
            }
        }
        Ok(true)
    }

    /// Whether a session was resumed; `None` before the handshake is done.
    pub(crate) fn resumed(&self) -> Option<bool> {
        Some(match self.0.handshake_kind()? {
            HandshakeKind::Resumed => true,
            HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest => false,
        })
    }

    /// Takes bytes to send; what the socket does not take stays here and goes with [`Session::flush`].
    pub(crate) fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.0.writer().write_all(bytes).map_err(ConnectionError::tls)?;
        self.flush(socket)
    }

    pub(crate) fn flush(&mut self, socket: &OwnedFd) -> Result<(), ConnectionError> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut Stream(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(io_fault(&error)),
            }
        }
        Ok(())
    }

    /// Bytes that came, in the clear. `None`: none are there; zero: the end.
    pub(crate) fn receive(
        &mut self,
        socket: &OwnedFd,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, ConnectionError> {
        loop {
            match self.0.reader().read(buffer) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Many servers close without a closing message.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                Err(error) => return Err(ConnectionError::tls(error)),
            }
            match self.pull(socket)? {
                Pulled::Records => {}
                Pulled::Nothing => return Ok(None),
                // The reader reports the end again, after the remaining data.
                Pulled::End if self.0.wants_read() => return Ok(Some(0)),
                Pulled::End => {}
            }
        }
    }

    fn pull(&mut self, socket: &OwnedFd) -> Result<Pulled, ConnectionError> {
        match self.0.read_tls(&mut Stream(socket)) {
            Ok(0) => return Ok(Pulled::End),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Pulled::Nothing),
            Err(error) => return Err(io_fault(&error)),
        }
        let processed = self.0.process_new_packets().map(|_| ()).map_err(|error| failed(&error));
        // An alert with the reason is sent to the peer even then.
        self.flush(socket)?;
        processed.map(|()| Pulled::Records)
    }
}

enum Pulled {
    Records,
    Nothing,
    End,
}

fn failed(error: &rustls::Error) -> ConnectionError {
    // The library names its own kind alone. `openssl req -x509` makes such certificates.
    if let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) = error
        && why.to_string() == "CaUsedAsEndEntity"
    {
        return ConnectionError::tls(
            "the server's own certificate is one of an authority (CA:TRUE), which proves no server: make it with \
             basicConstraints=critical,CA:FALSE, or trust any certificate, which measures the same",
        );
    }
    ConnectionError::tls(error)
}

fn io_fault(error: &io::Error) -> ConnectionError {
    error.raw_os_error().map_or_else(|| ConnectionError::tls(error), ConnectionError::System)
}

/// A socket with the interface that the library needs.
struct Stream<'a>(&'a OwnedFd);

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(self.0, buffer)?.ok_or_else(|| Errno::AGAIN.into())
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, bytes)?.ok_or_else(|| Errno::AGAIN.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::{ServerConfig, ServerConnection};

    use super::*;

    /// As `openssl req -x509` makes them.
    #[test]
    fn a_certificate_of_an_authority_is_refused_with_what_to_do() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), certificate.pem()).unwrap();
        let tls = Tls::new("localhost", Trust::File(file.path())).unwrap();

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.into()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let mut client = ClientConnection::new(tls.config, tls.name).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        server.read_tls(&mut hello.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let mut answer = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut answer).unwrap();
        }
        let mut answer = answer.as_slice();
        let refused = loop {
            client.read_tls(&mut answer).unwrap();
            if let Err(error) = client.process_new_packets() {
                break failed(&error).to_string();
            }
            assert!(!answer.is_empty(), "it is believed");
        };
        let expected = "TLS: the server's own certificate is one of an authority (CA:TRUE), which proves no server: make it \
             with basicConstraints=critical,CA:FALSE, or trust any certificate, which measures the same";
        assert_eq!(refused, expected);
    }
}
