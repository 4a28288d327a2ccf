//! Route tables in the calls of Amazon EC2: its query protocol (version 2016-11-15), XML answers, requests signed by
//! [`sign`], and what the instance knows of itself by [`metadata`].

mod answers;
mod credentials;
mod http;
mod metadata;
mod sign;

use std::time::SystemTime;

use ::http::uri::Scheme;
use ::http::{Method, Uri, header};
use datapath::Addresses;
use form_urlencoded::Serializer;
use ipnet::IpNet;
use serde::de::DeserializeOwned;

use self::answers::{InterfacesAnswer, Pages, RouteTablesAnswer};
use self::credentials::{Credentials, Keys};
use self::http::Client;
use self::metadata::Metadata;
use super::{Call, CloudEndpoint, CloudError, Interface, RouteTables, Table};

/// The version of the API, the only one there is since 2016.
const VERSION: &str = "2016-11-15";
/// The name by which requests are signed.
const SERVICE: &str = "ec2";
/// What the domains of China's regions end with; all others have that of the world.
const DOMAIN: &str = "amazonaws.com";
const DOMAIN_CHINA: &str = "amazonaws.com.cn";

/// Where calls go, and whose keys sign them: what AWS's own tools read from the environment.
#[derive(Debug, Clone, Default)]
pub struct Login {
    /// The URL of EC2, if it is not the region's own (`AWS_ENDPOINT_URL_EC2`, `AWS_ENDPOINT_URL`).
    pub endpoint: Option<String>,
    /// The URL of the metadata service, if it is not the usual one (`AWS_EC2_METADATA_SERVICE_ENDPOINT`).
    pub metadata: Option<String>,
    /// The region, if it is not the instance's (`AWS_REGION`, `AWS_DEFAULT_REGION`).
    pub region: Option<String>,
    keys: Option<Keys>,
}

/// Amazon EC2, as an instance sees it.
pub(crate) struct Ec2 {
    login: Login,
    metadata: Metadata,
    http: Client,
    region: Option<String>,
    instance: Option<String>,
    credentials: Option<Credentials>,
}

/// The parameters of a call.
#[derive(Default)]
struct Query(Vec<(String, String)>);

impl Login {
    /// As the environment says.
    pub fn from_environment() -> Login {
        let first = |names: &[&str]| {
            names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        };
        Login {
            endpoint: first(&["AWS_ENDPOINT_URL_EC2", "AWS_ENDPOINT_URL"]),
            metadata: first(&["AWS_EC2_METADATA_SERVICE_ENDPOINT"]),
            region: first(&["AWS_REGION", "AWS_DEFAULT_REGION"]),
            keys: Keys::read(&first),
        }
    }

    /// With keys of an account instead of the instance's role.
    #[must_use]
    pub fn with_keys(self, id: &str, secret: &str) -> Login {
        Login { keys: Some(Keys::new(id, secret)), ..self }
    }

    /// The same at the place where something was made: there alone it can be taken back, whatever the environment says.
    fn at(self, place: &CloudEndpoint) -> Login {
        Login { region: Some(place.region.clone()), endpoint: place.endpoint.clone(), ..self }
    }
}

impl Ec2 {
    pub(crate) fn new(login: Login) -> Ec2 {
        let metadata = Metadata::at(login.metadata.as_deref());
        let region = login.region.clone();
        Ec2 { login, metadata, http: Client::default(), region, instance: None, credentials: None }
    }

    async fn region(&mut self) -> Result<String, CloudError> {
        if self.region.is_none() {
            self.region = Some(self.metadata.ask(&mut self.http, "placement/region").await?);
        }
        Ok(self.region.clone().unwrap_or_default())
    }

    async fn credentials(&mut self) -> Result<Credentials, CloudError> {
        let is_good = self.credentials.as_ref().is_some_and(|known| known.last_until(SystemTime::now()));
        if !is_good {
            let found = match &self.login.keys {
                Some(keys) => Credentials::lasting(keys.clone()),
                None => credentials::of_role(&self.metadata, &mut self.http).await?,
            };
            self.credentials = Some(found);
        }
        self.credentials.clone().ok_or_else(|| CloudError::Credentials("there are none".to_owned()))
    }

    async fn endpoint(&mut self) -> Result<Uri, CloudError> {
        let region = self.region().await?;
        let domain = if region.starts_with("cn-") { DOMAIN_CHINA } else { DOMAIN };
        let url =
            self.login.endpoint.clone().unwrap_or_else(|| format!("https://{SERVICE}.{region}.{domain}/"));
        let uri: Result<Uri, _> = url.parse();
        match uri {
            Ok(uri) if uri.scheme().is_some() && uri.authority().is_some() && uri.path() == "/" => Ok(uri),
            _ => Err(CloudError::Unanswered {
                attempt: format!("call {url}"),
                why: "http://HOST or https://HOST is expected".to_owned(),
            }),
        }
    }

    /// Makes a call. Credentials that the cloud no longer takes are found again by the next one.
    async fn ask<T: DeserializeOwned>(
        &mut self,
        attempt: &str,
        action: &'static str,
        query: Query,
    ) -> Result<T, CloudError> {
        let unanswered = |why: String| CloudError::Unanswered { attempt: attempt.to_owned(), why };
        let (endpoint, region) = (self.endpoint().await?, self.region().await?);
        let credentials = self.credentials().await?;
        let body = query.with(&[("Action", action), ("Version", VERSION)]).finish();
        let host = host(&endpoint);
        let to_sign = sign::UnsignedRequest { host: &host, body: &body, region: &region, service: SERVICE };
        let mut request = ::http::Request::builder().method(Method::POST).uri(&endpoint);
        request = request.header(header::CONTENT_TYPE, sign::FORM).header(header::HOST, &host);
        for (name, value) in sign::headers(&to_sign, &credentials.keys, SystemTime::now()) {
            request = request.header(name, value);
        }
        let answer = self.http.send(request, body).await;
        let answer = answer.map_err(|why| unanswered(format!("{why} ({endpoint})")))?;
        if answer.status.is_success() {
            return answers::read(&answer.body).map_err(unanswered);
        }
        let error = match answers::refusal(&answer.body) {
            Some((code, message)) => {
                let (attempt, status) = (attempt.to_owned(), answer.status.as_u16());
                CloudError::Refused { attempt, action, status, code, message }
            }
            None => unanswered(format!("{endpoint} answers {}", answer.status)),
        };
        if error.is_stale() {
            self.credentials = None;
        }
        Err(error)
    }
}

impl RouteTables for Ec2 {
    async fn machine(&mut self) -> Result<String, CloudError> {
        if self.instance.is_none() {
            self.instance = Some(self.metadata.ask(&mut self.http, "instance-id").await?);
        }
        Ok(self.instance.clone().unwrap_or_default())
    }

    async fn interface(&mut self, addresses: &Addresses) -> Result<Interface, CloudError> {
        let instance = self.machine().await?;
        let attempt = format!("list the network interfaces of {instance}");
        let filter = [("attachment.instance-id", instance.as_str())];
        let mut pages = Pages::default();
        loop {
            let query = Query::new().filters(&filter).page(pages.next());
            let answer: InterfacesAnswer = self.ask(&attempt, "DescribeNetworkInterfaces", query).await?;
            let (interfaces, rest) = answer.read(&instance);
            let ours = interfaces.into_iter().find(|(_, theirs)| {
                theirs.iter().any(|address| addresses.iter().any(|ours| ours == *address))
            });
            if let Some((interface, _)) = ours {
                return Ok(interface);
            }
            if !turn(&mut pages, &attempt, rest)? {
                break;
            }
        }
        let listed = addresses.iter().map(|address| address.to_string()).collect::<Vec<_>>().join(" or ");
        Err(CloudError::Missing {
            what: format!("the network interface of {instance} that has {listed}"),
            why: "it has none with an address of the link to other nodes; `--wire` names that link"
                .to_owned(),
        })
    }

    async fn tables(&mut self, names: &[String]) -> Result<Vec<Table>, CloudError> {
        let attempt = format!("list the routes of route table {}", names.join(", "));
        self.tables_by(&attempt, |query| query.list("RouteTableId", names)).await
    }

    async fn table_of(&mut self, interface: &Interface) -> Result<Table, CloudError> {
        let attempt = format!("list the routes of the route table of {}", interface.subnet);
        // A subnet without a table of its own has the main one of its network.
        let of_subnet = [("association.subnet-id", interface.subnet.as_str())];
        let main = [("association.main", "true"), ("vpc-id", interface.vpc.as_str())];
        for filters in [&of_subnet[..], &main] {
            let found = self.tables_by(&attempt, |query| query.filters(filters)).await?;
            if let Some(table) = found.into_iter().next() {
                return Ok(table);
            }
        }
        Err(CloudError::Missing {
            what: format!("the route table of {}", interface.subnet),
            why: format!("{} has no main one; `RouteTableID` names one", interface.vpc),
        })
    }

    /// Each network has a table at least, its main one.
    async fn sees(&mut self, vpc: &str) -> Result<bool, CloudError> {
        let attempt = format!("list the route tables of {vpc}");
        Ok(!self.tables_by(&attempt, |query| query.filters(&[("vpc-id", vpc)])).await?.is_empty())
    }

    async fn call(&mut self, call: &Call) -> Result<(), CloudError> {
        let query = Query::new();
        let query = match call {
            Call::Create { table, prefix, interface } | Call::Replace { table, prefix, interface } => {
                query.with(&[("RouteTableId", table), ("NetworkInterfaceId", interface)]).destination(*prefix)
            }
            Call::Delete { table, prefix } => query.with(&[("RouteTableId", table)]).destination(*prefix),
            Call::CheckSource { interface, on } => {
                let on = if *on { "true" } else { "false" };
                query.with(&[("NetworkInterfaceId", interface), ("SourceDestCheck.Value", on)])
            }
        };
        let done: answers::Done = self.ask(&call.attempt(), call.action(), query).await?;
        done.check().map_err(|why| CloudError::Unanswered { attempt: call.attempt(), why })
    }

    async fn place(&mut self) -> Result<CloudEndpoint, CloudError> {
        Ok(CloudEndpoint { region: self.region().await?, endpoint: self.login.endpoint.clone() })
    }

    fn at(&self, place: &CloudEndpoint) -> Ec2 {
        Ec2::new(self.login.clone().at(place))
    }
}

impl Ec2 {
    async fn tables_by(
        &mut self,
        attempt: &str,
        select: impl Fn(Query) -> Query,
    ) -> Result<Vec<Table>, CloudError> {
        let (mut tables, mut pages) = (Vec::new(), Pages::default());
        loop {
            let query = select(Query::new()).page(pages.next());
            let answer: RouteTablesAnswer = self.ask(attempt, "DescribeRouteTables", query).await?;
            let (some, rest) = answer.read();
            tables.extend(some);
            if !turn(&mut pages, attempt, rest)? {
                return Ok(tables);
            }
        }
    }
}

/// Goes on in a list.
fn turn(pages: &mut Pages, attempt: &str, next: Option<String>) -> Result<bool, CloudError> {
    pages.turn(next).map_err(|why| CloudError::Unanswered { attempt: attempt.to_owned(), why })
}

/// The header `Host` for a URL: a port that the scheme has anyway is none of it.
fn host(url: &Uri) -> String {
    let usual = if url.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let name = url.host().unwrap_or_default();
    match url.port_u16() {
        Some(port) if port != usual => format!("{name}:{port}"),
        _ => name.to_owned(),
    }
}

impl Query {
    fn new() -> Query {
        Query::default()
    }

    fn with(mut self, pairs: &[(&str, &str)]) -> Query {
        self.0.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    /// Adds a list as AWS's query protocol has it: `Name.1`, `Name.2` …
    fn list(mut self, name: &str, values: &[String]) -> Query {
        let numbered = (1..).zip(values).map(|(number, value)| (format!("{name}.{number}"), value.clone()));
        self.0.extend(numbered);
        self
    }

    fn filters(mut self, filters: &[(&str, &str)]) -> Query {
        for (number, (name, value)) in (1..).zip(filters) {
            self.0.push((format!("Filter.{number}.Name"), (*name).to_owned()));
            self.0.push((format!("Filter.{number}.Value.1"), (*value).to_owned()));
        }
        self
    }

    fn page(self, token: Option<&str>) -> Query {
        match token {
            Some(token) => self.with(&[("NextToken", token)]),
            None => self,
        }
    }

    fn destination(self, prefix: IpNet) -> Query {
        let key = match prefix {
            IpNet::V4(_) => "DestinationCidrBlock",
            IpNet::V6(_) => "DestinationIpv6CidrBlock",
        };
        self.with(&[(key, &prefix.to_string())])
    }

    fn finish(self) -> String {
        Serializer::new(String::new()).extend_pairs(self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_signed_as_it_is_sent() {
        let of = |url: &str| host(&url.parse().unwrap());
        assert_eq!(of("https://ec2.eu-west-1.amazonaws.com/"), "ec2.eu-west-1.amazonaws.com");
        assert_eq!(of("https://ec2.example:443/"), "ec2.example");
        assert_eq!(of("http://192.0.2.1:80/"), "192.0.2.1");
        assert_eq!(of("https://ec2.example:80/"), "ec2.example:80");
        assert_eq!(of("http://[2001:db8::1]:8773/"), "[2001:db8::1]:8773");
    }
}
