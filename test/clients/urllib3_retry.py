# Sends two requests with urllib3 and its Retry, which waits for Retry-After.
import sys

import urllib3

pool = urllib3.PoolManager(retries=urllib3.Retry(total=3, status_forcelist=[429]))
for _ in range(2):
    print(pool.request("GET", sys.argv[1]).status)
