"""seed.py identity|resources: fill the fresh cloud through its own APIs.

Environment: FM_PORTS (JSON, service -> port), FM_CREDENTIALS (file that gets the ids and secrets of the application
credentials, mode 600).
"""
import json
import os
import secrets
import sys

import openstack

PORTS = json.loads(os.environ['FM_PORTS'])
FLAVORS = [  # name, vcpus, MiB, GiB
    ('gpu-h100', 16, 4000, 100),     # what a lab node offers: the metal's machines have as much
    ('small', 1, 512, 1),
    ('large', 4, 4096, 10),
    ('toobig', 5000, 512, 1),        # a flavor too many: no host can take it
]
IMAGES = ('slurm-node-a', 'slurm-node-b')


def url(service, tail=''):
    return f'http://127.0.0.1:{PORTS[service]}{tail}'


def connect(user, password, project):
    return openstack.connect(
        auth_url=url('keystone', '/v3'), username=user, password=password, project_name=project,
        user_domain_id='default', project_domain_id='default', region_name='RegionOne')


def identity():
    ident = connect('admin', 'adminpass', 'admin').identity
    roles = {r.name: r for r in ident.roles()}
    for r in ('service', 'admin', 'member', 'reader'):
        if r not in roles:
            roles[r] = ident.create_role(name=r)
    svcproj = ident.create_project(name='service', domain_id='default')
    demo = ident.create_project(name='demo', domain_id='default')
    for u in ('nova', 'glance', 'placement', 'neutron'):
        user = ident.create_user(name=u, password='svcpass', domain_id='default')
        for r in ('admin', 'service'):
            ident.assign_project_role_to_user(svcproj, user, roles[r])
    user = ident.create_user(name='demo', password='demopass', domain_id='default')
    ident.assign_project_role_to_user(demo, user, roles['member'])
    # an operator of project demo: admin role there, so that it may pin az::host / use --host (2.74)
    ops = ident.create_user(name='ops', password='opspass', domain_id='default')
    for r in ('admin', 'member'):
        ident.assign_project_role_to_user(demo, ops, roles[r])
    for name, kind, tail in (('nova', 'compute', '/v2.1'), ('glance', 'image', ''), ('placement', 'placement', ''),
                             ('neutron', 'network', '')):
        s = ident.create_service(name=name, type=kind)
        for i in ('public', 'internal', 'admin'):
            ident.create_endpoint(service_id=s.id, interface=i, url=url(name, tail), region_id='RegionOne')


def resources():
    adm = connect('admin', 'adminpass', 'admin')
    for name, vcpus, ram, disk in FLAVORS:
        adm.compute.create_flavor(name=name, vcpus=vcpus, ram=ram, disk=disk)
    for name in IMAGES:
        adm.image.create_image(name=name, disk_format='raw', container_format='bare', visibility='public',
                               data=b'fake image ' + name.encode() * 100)
    net = adm.network.create_network(name='shared-net', is_shared=True)
    adm.network.create_subnet(network_id=net.id, ip_version=4, cidr='10.99.0.0/16', name='shared-subnet',
                              is_dhcp_enabled=False)
    made = {}
    for user in ('demo', 'ops'):
        c = connect(user, user + 'pass', 'demo')
        secret = secrets.token_urlsafe(24)
        ac = c.identity.create_application_credential(c.current_user_id, 'fleet', secret=secret)
        made[user + '-app'] = {'application_credential_id': ac.id, 'application_credential_secret': secret}
    with os.fdopen(os.open(os.environ['FM_CREDENTIALS'], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'w') as f:
        json.dump(made, f)


{'identity': identity, 'resources': resources}[sys.argv[1]]()
