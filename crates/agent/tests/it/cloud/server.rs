//! A cloud: a router between nodes that goes by a route table, the calls that change the table, and the service by
//! which instances know themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::Netns;
use testkit::shell;

use super::protocol::{Keys, Request, answer};

pub(crate) const TABLE: &str = "rtb-0a";
/// With the port that HTTP has anyway, which no client sends.
pub(crate) const URL: &str = "http://192.0.2.1:80";
const AT: &str = "192.0.2.1:80";
const REGION: &str = "eu-test-1";
/// The table of the network that has no routes to pods, and is there where the other one is not.
const OTHER_TABLE: &str = "rtb-0b";
const TOKEN: &str = "token-of-the-instance";
pub(crate) const ROLE: Keys = Keys { id: "ASIATEST", secret: "secret/of+the=role", token: "session==" };

/// An instance, whose link to the router has its name.
pub(crate) struct Instance {
    pub(crate) name: &'static str,
    pub(crate) address: &'static str,
    pub(crate) checks_source: bool,
    pub(crate) is_alive: bool,
}

/// What the cloud has.
pub(crate) struct State {
    router: String,
    pub(crate) instances: Vec<Instance>,
    /// Which instance a prefix leads to.
    pub(crate) routes: BTreeMap<String, String>,
    pub(crate) routes_max: usize,
    /// Calls that the role may not make.
    pub(crate) denied: BTreeSet<&'static str>,
    /// So many of the next calls are too many.
    pub(crate) throttled: usize,
    /// So many of the next calls that change something succeed, and the answer says that they have not.
    pub(crate) garbled: usize,
    /// How many calls were denied.
    pub(crate) denials: usize,
    /// Lists have no end.
    pub(crate) is_endless: bool,
    /// What the lists say is of before any route was made.
    pub(crate) is_stale: bool,
    /// The table is deleted.
    pub(crate) lacks_table: bool,
    /// The role is one of another account, to which nothing here is shown.
    pub(crate) is_foreign: bool,
    /// When each call that was refused arrived.
    pub(crate) refused_at: Vec<Instant>,
    /// The calls that changed something.
    pub(crate) changes: Vec<String>,
}

/// The server, which ends with this.
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    netns: Netns,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves in the router's namespace, whose name is given, too.
    pub(crate) fn start(netns: Netns, router: String, instances: Vec<Instance>) -> Server {
        let state = State {
            router,
            instances,
            routes: BTreeMap::new(),
            routes_max: 50,
            denied: BTreeSet::new(),
            throttled: 0,
            garbled: 0,
            denials: 0,
            is_endless: false,
            is_stale: false,
            lacks_table: false,
            is_foreign: false,
            refused_at: Vec::new(),
            changes: Vec::new(),
        };
        for instance in state.instances.iter().filter(|instance| instance.checks_source) {
            state.check_source(instance);
        }
        let (state, is_over) = (Arc::new(Mutex::new(state)), Arc::new(AtomicBool::new(false)));
        let listener = netns.run(|| TcpListener::bind(AT)).unwrap().unwrap();
        let (shared, over) = (Arc::clone(&state), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                if let Some(request) = Request::read(&stream) {
                    let (status, body) = shared.lock().unwrap().serve(&request);
                    answer(&stream, status, &body);
                }
            }
        });
        Server { state, netns, is_over, thread: Some(thread) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        drop(self.netns.run(|| TcpStream::connect(AT)));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl State {
    fn serve(&mut self, request: &Request) -> (u16, String) {
        if request.path.starts_with("/latest/") {
            return self.metadata(request);
        }
        let parameters = request.parameters();
        let action = parameters.get("Action").map_or("", String::as_str);
        let Some(region) = request.region_signed_by(&ROLE) else {
            return refusal(
                403,
                "AuthFailure",
                "AWS was not able to validate the provided access credentials",
            );
        };
        if self.throttled > 0 {
            self.throttled -= 1;
            self.refused_at.push(Instant::now());
            return refusal(503, "RequestLimitExceeded", "Request limit exceeded.");
        }
        if self.denied.contains(action) {
            self.denials += 1;
            let blob = format!("Encoded authorization failure message: {:064x}", self.denials);
            let message = format!("You are not authorized to perform this operation. {blob}");
            return refusal(403, "UnauthorizedOperation", &message);
        }
        let is_here = region == REGION && !self.is_foreign;
        let outcome = match action {
            "DescribeNetworkInterfaces" => Ok(self.interfaces(&parameters["Filter.1.Value.1"])),
            "DescribeRouteTables" => self.tables(&parameters, is_here),
            "ModifyNetworkInterfaceAttribute" if !is_here => {
                Err(("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID does not exist"))
            }
            _ if !is_here => Err(("InvalidRouteTableID.NotFound", "The routeTable ID does not exist")),
            _ => self.change(action, &parameters).map(|()| "<return>true</return>".to_owned()),
        };
        if self.garbled > 0 && !action.starts_with("Describe") && outcome.is_ok() {
            self.garbled -= 1;
            return refusal(500, "InternalError", "An internal error has occurred");
        }
        match outcome {
            Ok(body) => {
                let xmlns = "http://ec2.amazonaws.com/doc/2016-11-15/";
                (
                    200,
                    format!(
                        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"{xmlns}\"><requestId>59dbff89-35bd-4eac-99ed-be587EXAMPLE</requestId>{body}</{action}Response>"
                    ),
                )
            }
            Err((code, message)) => refusal(400, code, message),
        }
    }

    /// What the metadata service tells an instance, which it knows by its address.
    fn metadata(&self, request: &Request) -> (u16, String) {
        if request.path == "/latest/api/token" {
            let has_time = !request.header("x-aws-ec2-metadata-token-ttl-seconds").is_empty();
            return if request.method == "PUT" && has_time {
                (200, TOKEN.to_owned())
            } else {
                (400, String::new())
            };
        }
        if request.header("x-aws-ec2-metadata-token") != TOKEN {
            return (401, String::new());
        }
        let from = request.from.to_string();
        let instance = self.instances.iter().find(|instance| instance.address == from).unwrap();
        let Keys { id, secret, token } = ROLE;
        match request.path.trim_start_matches("/latest/meta-data/") {
            "instance-id" => (200, format!("i-{}", instance.name)),
            "placement/region" => (200, REGION.to_owned()),
            "iam/security-credentials/" => (200, "node".to_owned()),
            "iam/security-credentials/node" => (
                200,
                format!(
                    r#"{{ "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "{id}", "SecretAccessKey": "{secret}",
                    "Token": "{token}", "Expiration": "2099-01-01T00:00:00Z" }}"#
                ),
            ),
            _ => (404, String::new()),
        }
    }

    fn interfaces(&self, instance: &str) -> String {
        let found = self.instances.iter().filter(|one| format!("i-{}", one.name) == instance);
        let item = |one: &Instance| {
            let Instance { name, address, checks_source, .. } = one;
            format!(
                "<item><networkInterfaceId>eni-{name}</networkInterfaceId><subnetId>subnet-{name}</subnetId>\
                 <vpcId>vpc-1</vpcId><ownerId>111122223333</ownerId><sourceDestCheck>{checks_source}</sourceDestCheck><attachment>\
                 <instanceId>{instance}</instanceId></attachment><privateIpAddressesSet><item>\
                 <privateIpAddress>{address}</privateIpAddress><primary>true</primary></item>\
                 </privateIpAddressesSet><ipv6AddressesSet/></item>"
            )
        };
        format!("<networkInterfaceSet>{}</networkInterfaceSet>", found.map(item).collect::<String>())
    }

    /// The one table is the main one of the network: no subnet has a table of its own.
    fn tables(
        &self,
        parameters: &BTreeMap<String, String>,
        is_here: bool,
    ) -> Result<String, (&'static str, &'static str)> {
        let parameter = |key: &str| parameters.get(key).map_or("", String::as_str);
        let (named, filter) = (parameter("RouteTableId.1"), parameter("Filter.1.Name"));
        let has_table = is_here && !self.lacks_table;
        let tables = match (named, filter) {
            (TABLE, _) if has_table => self.table(TABLE),
            ("", "association.main") if has_table => self.table(TABLE),
            ("", "vpc-id") if is_here && parameter("Filter.1.Value.1") == "vpc-1" => self.table(OTHER_TABLE),
            ("", _) => String::new(),
            _ => return Err(("InvalidRouteTableID.NotFound", "The routeTable ID does not exist")),
        };
        let more = if self.is_endless { "<nextToken>more</nextToken>" } else { "" };
        Ok(format!("<routeTableSet>{tables}</routeTableSet>{more}"))
    }

    fn table(&self, name: &str) -> String {
        let route = |(prefix, to): (&String, &String)| {
            let is_alive = self.instances.iter().any(|one| one.name == to && one.is_alive);
            let state = if is_alive { "active" } else { "blackhole" };
            format!(
                "<item><destinationCidrBlock>{prefix}</destinationCidrBlock><instanceId>i-{to}</instanceId>\
                 <instanceOwnerId>111122223333</instanceOwnerId><networkInterfaceId>eni-{to}</networkInterfaceId>\
                 <state>{state}</state><origin>CreateRoute</origin></item>"
            )
        };
        let has_routes = name == TABLE && !self.is_stale;
        let routes: String = self.routes.iter().filter(|_| has_routes).map(route).collect();
        format!(
            "<item><routeTableId>{name}</routeTableId><vpcId>vpc-1</vpcId><ownerId>111122223333</ownerId><routeSet><item>\
             <destinationCidrBlock>192.0.2.0/24</destinationCidrBlock><gatewayId>local</gatewayId><state>active\
             </state><origin>CreateRouteTable</origin></item>{routes}</routeSet><associationSet><item><main>true</main>\
             </item></associationSet><propagatingVgwSet/><tagSet/></item>"
        )
    }

    fn change(
        &mut self,
        action: &str,
        parameters: &BTreeMap<String, String>,
    ) -> Result<(), (&'static str, &'static str)> {
        let parameter = |name: &str| parameters.get(name).map_or("", String::as_str);
        let name = parameter("NetworkInterfaceId").trim_start_matches("eni-").to_owned();
        let prefix = parameter("DestinationCidrBlock").to_owned();
        let has_route = self.routes.contains_key(&prefix);
        match action {
            "CreateRoute" if has_route => {
                return Err(("RouteAlreadyExists", "The route already exists."));
            }
            // The network's own route counts, too.
            "CreateRoute" if self.routes.len() + 1 >= self.routes_max => {
                return Err(("RouteLimitExceeded", "The maximum number of routes has been reached."));
            }
            "ReplaceRoute" | "DeleteRoute" if !has_route => {
                return Err(("InvalidRoute.NotFound", "no route with that destination"));
            }
            "CreateRoute" | "ReplaceRoute" => self.lead(&prefix, &name),
            "DeleteRoute" => self.delete(&prefix),
            "ModifyNetworkInterfaceAttribute" => {
                let at = self.instances.iter().position(|one| one.name == name).unwrap();
                self.instances[at].checks_source = parameter("SourceDestCheck.Value") == "true";
                self.check_source(&self.instances[at]);
            }
            _ => return Err(("InvalidAction", "The action is not valid for this web service.")),
        }
        self.changes.push(format!("{action} {prefix} {name}"));
        Ok(())
    }

    /// A prefix leads to an instance from now on: the router's own routes are the table.
    pub(crate) fn lead(&mut self, prefix: &str, name: &str) {
        let instance = self.instances.iter().find(|one| one.name == name).unwrap();
        let router = &self.router;
        if instance.is_alive {
            let address = instance.address;
            shell(&format!("ip -n {router} route replace {prefix} via {address} dev {name}"));
        } else {
            shell(&format!("ip -n {router} route replace blackhole {prefix}"));
        }
        self.routes.insert(prefix.to_owned(), name.to_owned());
    }

    pub(crate) fn delete(&mut self, prefix: &str) {
        let router = &self.router;
        shell(&format!("ip -n {router} route delete {prefix}"));
        self.routes.remove(prefix);
    }

    /// Packets that come from an instance with another address than its own are dropped, or pass.
    fn check_source(&self, instance: &Instance) {
        let Instance { name, address, checks_source, .. } = instance;
        let router = &self.router;
        let verb = if *checks_source { "add" } else { "delete" };
        shell(&format!(
            "ip -n {router} rule {verb} priority 10 from {address} iif {name} lookup main
             ip -n {router} rule {verb} priority 11 iif {name} blackhole"
        ));
    }
}

fn refusal(status: u16, code: &str, message: &str) -> (u16, String) {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}\
         </Message></Error></Errors><RequestID>ea966190-f9aa-478e-9ede-example</RequestID></Response>"
    );
    (status, body)
}
